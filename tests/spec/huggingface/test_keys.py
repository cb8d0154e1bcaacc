import pytest

from torchledger.spec import SpecError
from torchledger.spec.huggingface.keys import Keys


def keys(**given):
    return Keys.of(given, "llama", "here")


def test_a_size_has_many_names():
    """The first name that says something is read, the model's own before the others."""
    assert keys(n_embd=48).size("hidden_size") == 48
    assert keys(d_model=48, hidden_size=64).size("hidden_size") == 64
    assert keys(hidden_size=None, d_model=48).size("hidden_size") == 48


def test_null_is_nothing():
    """A null is nothing, not the default, for a value that may be missing."""
    assert keys(num_key_value_heads=None).optional_size("num_key_value_heads") is None
    assert keys().optional_number("rope_theta") == 10_000
    assert keys(rope_theta=None).optional_number("rope_theta") is None


def test_only_sizes_are_told_as_assumed():
    """A size taken for its default is remembered, once; a factor or a switch is not."""
    config = keys()
    assert (config.size("hidden_size"), config.size("hidden_size")) == (4096, 4096)
    assert (config.number("norm_eps"), config.flag("mlp_bias")) == (1e-6, False)
    assert config.assumed == ["hidden_size is not in the config and was taken for transformers' default, 4096"]


@pytest.mark.parametrize(
    ("read", "value", "told"),
    [
        ("size", 0, "expected a whole number of at least 1, got 0"),
        ("size", True, "expected a whole number of at least 1, got True"),
        ("size", 3.0, "expected a whole number of at least 1, got 3.0"),
        ("size", None, "is null; a whole number is needed"),
        ("count", -1, "expected a whole number of at least 0, got -1"),
        ("number", "7", "expected a number, got '7'"),
        ("number", True, "expected a number, got True"),
        ("number", None, "is null; a number is needed"),
        ("flag", 1, "expected true or false, got 1"),
        ("text", 1, "expected a text, got 1"),
        ("table", [], "expected an object, got []"),
        ("items", {}, "expected a list, got {}"),
    ],
)
def test_a_wrong_type_is_a_mistake_told_later(read, value, told):
    """Reading goes on with a stand-in, and the mistake is raised with the rest."""
    config = keys(key=value)
    getattr(config, read)("key")
    assert config.mistakes == [("key", told)]
    with pytest.raises(SpecError, match=r"^here: key: "):
        config.require_no_mistakes()


def test_nothing_is_the_empty_value():
    """What is missing and has no default is zero, false, empty."""
    config = keys()
    assert (config.count("x"), config.flag("x"), config.text("x")) == (0, False, "")
    assert (config.table("x"), config.items("x")) == ({}, [])
    config.require_no_mistakes()


def test_an_object_inside_tells_its_mistakes_outside():
    """Mistakes of an inner object are raised with those of the outer."""
    config = keys()
    config.within("rope_parameters", {"rope_theta": "x"}).optional_number("rope_theta")
    assert config.mistakes == [("rope_theta", "expected a number, got 'x'")]
