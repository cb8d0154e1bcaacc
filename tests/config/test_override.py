import pytest

from torchledger import config
from torchledger.config import ConfigError
from torchledger.config.override import read_sets

TABLE = {"model": {"hidden_size": 8}}


@pytest.mark.parametrize(
    ("given", "raw"),
    [
        ("a.b=8", {"a": {"b": 8}}),
        ("a=1e-4", {"a": 1e-4}),
        ("a=true", {"a": True}),
        ("a=[1, 2]", {"a": [1, 2]}),
        ('a="8"', {"a": "8"}),
        ("a=15T", {"a": "15T"}),
        ("a = b = c", {"a": "b = c"}),
        ("a=", {"a": ""}),
        ("a=1\nb=2", {"a": "1\nb=2"}),
        ("a=2026-11-29", {"a": "2026-11-29"}),
        ('a."b.c"=1', {"a": {"b.c": 1}}),
        ("a={b = 1}", {"a": {"b": 1}}),
    ],
)
def test_values_are_toml_or_else_text(given: str, raw: dict):
    """What reads as a TOML value is one, everything else is text; nothing can smuggle in a second key."""
    source, mistakes = read_sets([given])
    assert not mistakes
    assert source.table == raw


@pytest.mark.parametrize("given", ["x", "=3", "a b=3", "a[0]=3", "extends=other.toml", "a..b=1", "\n=1"])
def test_what_is_no_override(given: str, run_class):
    """An override without a key, a value or a sane key is one more mistake."""
    with pytest.raises(ConfigError) as error:
        config.load(None, run_class, table=TABLE, sets=[given])
    assert [path for path, _ in error.value.mistakes] == [f"--set {given}"]


def test_later_ones_win_and_others_stay(run_class):
    """Two overrides of one table both count; of one key the last."""
    sets = ["optimizer.decay=1", "optimizer.kind=sgd", "optimizer.decay=2", "name=7", "tokens=2**19"]
    loaded = config.load(None, run_class, table=TABLE, sets=sets)
    assert (loaded.value.optimizer.decay, loaded.value.optimizer.kind) == (2.0, "sgd")
    assert loaded.value.name == "7"
    assert loaded.value.tokens == 2**19
    assert loaded.origins["optimizer.decay"] == "--set"


def test_none_switches_an_optional_value_off(run_class):
    """TOML has no null, so the word none does it."""
    value = config.load(None, run_class, table=TABLE, sets=["checkpoint=none", "model.head=none"]).value
    assert value.checkpoint is None
    assert value.model.head is None
