import pytest

from torchledger.config import ConfigError, closest, did_you_mean

KNOWN = ["num_layers", "hidden_size", "learning_rate", "tensor_parallel", "tokens"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("num_layer", "num_layers"),
        ("n_layers", "num_layers"),
        ("Hidden-Size", "hidden_size"),
        ("lr", "learning_rate"),
        ("tp", "tensor_parallel"),
        ("token", "tokens"),
        ("t", None),
        ("zebra", None),
    ],
)
def test_the_name_that_was_meant(name: str, meant: str | None):
    """Near spellings, other spellings of the same words, and initials are recognised; a far name is not guessed."""
    assert closest(name, KNOWN) == meant


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("gpu", ["auto", "cpu", "cuda", "mps"], "cuda"),
        ("GPU", ["auto", "cpu", "cuda", "mps"], "cuda"),
        ("metal", ["auto", "cpu", "cuda", "mps"], "mps"),
        ("gpu", ["auto", "cpu"], "cpu"),  # nothing has that name here, so spelling it is
    ],
)
def test_another_word_for_the_same_thing(name: str, known: list[str], meant: str):
    """What means something that is known is no misspelling of its opposite."""
    assert closest(name, known) == meant


def test_initials_of_two_names_are_no_guess():
    """Where two names would fit, none is suggested."""
    assert closest("tp", ["tensor_parallel", "token_path"]) is None


def test_the_end_of_a_message():
    """A near name is suggested; otherwise all are listed."""
    assert did_you_mean("tokns", KNOWN) == "did you mean 'tokens'?"
    assert did_you_mean("zebra", ["a", "b"]) == "known: a, b"


def test_the_message_has_every_mistake():
    """One line for one mistake; a heading and a line each for several."""
    assert str(ConfigError("f.toml:3", [("", "is odd")])) == "f.toml:3: is odd"
    assert str(ConfigError("f.toml", [("a", "x"), ("b.c", "y")])) == "f.toml: 2 mistakes\n  a: x\n  b.c: y"
