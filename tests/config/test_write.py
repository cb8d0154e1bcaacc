import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger import config

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBER = st.floats(allow_nan=False)


def runs(run_class):
    """Any value of the class with a field of every kind."""
    classes = SimpleNamespace(**vars(sys.modules[run_class.__module__]))
    layers = st.builds(classes.Layer, size=st.integers(1, 10**20), name=TEXT)
    heads = st.integers(1, 8)
    models = heads.flatmap(
        lambda h: st.builds(
            classes.Model,
            hidden_size=st.integers(1, 100).map(lambda n: n * h),
            num_heads=st.just(h),
            tied=st.booleans(),
            layers=st.lists(layers, max_size=3).map(tuple),
            head=st.none() | layers,
        )
    )
    optimizers = st.builds(
        classes.Optimizer,
        kind=st.sampled_from(["adamw", "sgd"]),
        learning_rate=NUMBER,
        decay=NUMBER,
        betas=st.tuples(NUMBER, NUMBER),
        clip=st.none() | NUMBER,
    )
    paths = st.text("abc/. ", min_size=1, max_size=6).map(lambda text: Path(f"x{text}"))
    return st.builds(
        run_class,
        model=models,
        name=TEXT,
        tokens=st.integers(0, 10**30),
        memory=st.just("auto") | st.integers(0, 10**18),
        limit=st.none() | st.floats(0, 1e300),
        micro_batch=st.just("auto") | st.integers(),
        optimizer=optimizers,
        colour=st.sampled_from(classes.Colour),
        data=paths,
        checkpoint=st.none() | paths,
        scaling=st.dictionaries(TEXT, NUMBER | TEXT, max_size=3),
        tags=st.lists(TEXT, max_size=3),
        anything=st.integers() | TEXT | st.lists(st.integers(), max_size=2),
        note=st.none() | TEXT,
    )


@given(st.data())
def test_what_is_written_reads_back(run_class, data):
    """The TOML of any value gives an equal value: this is how a run folder keeps its configuration."""
    value = data.draw(runs(run_class))
    table = tomllib.loads(config.to_toml(value))
    assert config.load(None, run_class, table=table).value == value
    assert table == config.to_dict(value)


def test_nothing_is_written_only_where_it_is_no_default(run_class):
    """An optional field that is empty by default is left out; one that is not is switched off by a word."""
    value = config.load(None, run_class, table={"model": {"hidden_size": 8}, "checkpoint": "none"}).value
    table = config.to_dict(value)
    assert table["checkpoint"] == "none"
    assert "note" not in table
    assert "head" not in table["model"]
    assert "clip" not in table["optimizer"], "the field's own default has none"


def test_a_text_that_is_none_by_exception_cannot_be_written():
    """TOML cannot tell the text "none" from nothing, so such a value is refused instead of changed."""

    @dataclass(frozen=True)
    class Noted:
        note: str | None = "something"

    with pytest.raises(TypeError, match=r"Noted.note is None"):
        config.to_dict(Noted(None))


@pytest.mark.parametrize("value", [3, {"a": 1}, int])
def test_only_dataclasses_are_configurations(value):
    """A bare value or a class is our mistake."""
    with pytest.raises(TypeError):
        config.to_toml(value)


def test_something_foreign_is_refused():
    """A value that TOML has no word for is our mistake, said with the value."""

    @dataclass(frozen=True)
    class Odd:
        x: object = field(default_factory=lambda: 3j)

    with pytest.raises(TypeError, match="cannot hold 3j"):
        config.to_dict(Odd())


def test_leaves_are_values_and_empty_tables(run_class):
    """Every leaf is listed once, an empty table as itself, and tables in lists by their position."""
    table = {"model": {"hidden_size": 8, "layers": [{"size": 1}, {"size": 2}]}, "tags": ["a"]}
    found = dict(config.leaves(config.load(None, run_class, table=table).value))
    assert found["model", "layers", 1, "size"] == 2
    assert found["scaling",] == {}
    assert found["tags",] == ["a"]
    assert found["model", "head"] is None
