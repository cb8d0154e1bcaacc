import re
from pathlib import Path

import pytest

from torchledger import config
from torchledger.config import ConfigError
from torchledger.config.place import dotted


def mistakes(cls, text_or_table, sets=(), path=None) -> dict[str, str]:
    with pytest.raises(ConfigError) as error:
        config.load(path, cls, table=text_or_table, sets=sets)
    assert len(dict(error.value.mistakes)) == len(error.value.mistakes), "one mistake per path"
    return dict(error.value.mistakes)


def test_every_strength_in_its_order(in_folder, run_class):
    """Defaults give way to the extended file, it to the file, it to the caller's table, and that to --set."""
    in_folder("base.toml", 'name = "base"\n[model]\nhidden_size = 8\nnum_heads = 2\ntied = true\n')
    in_folder("run.toml", 'extends = "base.toml"\ntokens = "1B"\n[model]\nhidden_size = 16\nnum_heads = 8\n')
    loaded = config.load("run.toml", run_class, table={"model": {"hidden_size": 32}}, sets=["model.hidden_size=64"])
    assert loaded.value.model.hidden_size == 64
    assert loaded.value.model.num_heads == 8
    assert loaded.value.model.tied
    assert (loaded.value.name, loaded.value.tokens) == ("base", 10**9)
    assert loaded.files == (Path("run.toml"), Path("base.toml"))
    assert loaded.raw["model"] == {"hidden_size": 64, "num_heads": 8, "tied": True}


def test_the_origin_of_every_value(in_folder, run_class):
    """Each leaf names the file and line, the caller, --set, or the default; a default in a given table is a default."""
    in_folder("base.toml", "\n[model]\nhidden_size = 8\n")
    in_folder("run.toml", 'extends = "base.toml"\noptimizer.betas = [\n  0.8,\n  0.9,\n]\n[scaling]\nfactor = 8\n')
    loaded = config.load("run.toml", run_class, table={"name": "x"}, sets=["model.num_heads=2"])
    assert loaded.origins["model.hidden_size"] == "base.toml:3"
    assert loaded.origins["optimizer.betas"] == "run.toml:2"
    assert loaded.origins["scaling.factor"] == "run.toml:7"
    assert loaded.origins["name"] == "argument"
    assert loaded.origins["model.num_heads"] == "--set"
    assert loaded.origins["model.tied"] == "default"
    assert loaded.origins["optimizer.clip"] == "default"
    assert set(loaded.origins) == {dotted(place) for place, _ in config.leaves(loaded.value)}


def test_five_mistakes_in_one_message(in_folder, run_class):
    """All mistakes come at once, each with path, what is wrong, what to do, file and line."""
    in_folder(
        "run.toml",
        '[model]\nhiden_size = 8\nnum_heads = 3.7\n[optimizer]\nkind = "adamv"\nlr = 1\n[optimiser]\n',
    )
    with pytest.raises(ConfigError) as error:
        config.load("run.toml", run_class, sets=["tokens=15X"])
    assert error.value.mistakes == [
        ("optimiser", "unknown key; did you mean optimizer? [run.toml:7]"),
        ("model.hiden_size", "unknown key; did you mean model.hidden_size? [run.toml:2]"),
        ("model.num_heads", "expected a whole number, got 3.7 [run.toml:3]"),
        (
            "tokens",
            (
                "'15X' is not a count: 'X' is no known suffix; accepted: 70B, 15T, 4.2M, 7k, 1e12, 524_288, 2**19 "
                "(whole numbers; B is 10^9) [--set]"
            ),
        ),
        ("optimizer.lr", "unknown key; did you mean optimizer.learning_rate? [run.toml:6]"),
        ("optimizer.kind", "expected 'adamw' or 'sgd', got 'adamv'; did you mean 'adamw'? [run.toml:5]"),
    ]
    lines = str(error.value).split("\n")
    assert lines[0] == "run.toml: 6 mistakes"
    assert [re.sub(r"^  ", "", line) for line in lines[1:]] == [": ".join(mistake) for mistake in error.value.mistakes]


def test_a_key_in_the_wrong_table_is_sent_to_the_right_one(run_class):
    """A key that another table has names that table."""
    found = mistakes(run_class, {"model": {"hidden_size": 8, "learning_rate": 1.0}})
    assert found == {"model.learning_rate": "unknown key; it belongs to optimizer.learning_rate [argument]"}


def test_a_name_that_nothing_resembles_gets_the_list(run_class):
    """Where no guess is good, the keys that exist are listed."""
    found = mistakes(run_class, {"model": {"hidden_size": 8}, "optimizer": {"zzz": 1}})
    assert found["optimizer.zzz"].startswith("unknown key; optimizer has kind, learning_rate, decay, betas, clip")


def test_what_is_missing(run_class):
    """A missing value says how to give it, a missing table its keys; a misspelt one is a single mistake."""
    assert mistakes(run_class, {}) == {"model": "is missing; write a table [model] with hidden_size"}
    assert mistakes(run_class, {"model": {}}) == {
        "model.hidden_size": "is missing; write hidden_size = ..., a whole number [argument]"
    }
    assert list(mistakes(run_class, {"model": {"hidden_siz": 8}})) == ["model.hidden_siz"]


def test_errors_of_the_classes_themselves_are_collected(run_class):
    """A ValueError of __post_init__ is a mistake at the path of its table, beside the others."""
    table = {"model": {"hidden_size": 9, "layers": [{"size": 1}, {"size": 0}]}, "name": 3}
    assert mistakes(run_class, table) == {
        "model.layers[1]": "size must be at least 1, got 0; write a larger one [argument]",
        "name": "expected text, got 3; write it in quotes [argument]",
    }
    assert mistakes(run_class, {"model": {"hidden_size": 9}}) == {
        "model": "hidden_size 9 is no multiple of num_heads 4 [argument]"
    }


def test_a_partial_table_keeps_what_the_field_says(run_class):
    """Keys left out of a table come from the field's own default, not from the class's."""
    value = config.load(None, run_class, table={"model": {"hidden_size": 8}, "optimizer": {"decay": 0.0}}).value
    assert (value.optimizer.learning_rate, value.optimizer.clip, value.optimizer.decay) == (1e-3, None, 0.0)


def test_defaults_may_be_an_instance(run_class):
    """An instance stands under everything that is given, deep tables included."""
    first = config.load(None, run_class, table={"model": {"hidden_size": 8, "tied": True}, "name": "first"}).value
    second = config.load(None, run_class, sets=["model.num_heads=2"], defaults=first)
    assert second.value.model == type(first.model)(hidden_size=8, num_heads=2, tied=True)
    assert second.value.name == "first"
    assert second.origins["name"] == "default"


def test_a_single_mistake_is_one_line(run_class):
    """One mistake needs no heading."""
    with pytest.raises(ConfigError) as error:
        config.load(None, run_class, table={"model": {"hidden_size": 8}, "name": 3})
    assert str(error.value) == "configuration: name: expected text, got 3; write it in quotes [argument]"
