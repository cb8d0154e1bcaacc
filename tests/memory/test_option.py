import pytest

from torchledger.memory.option import split_options


def options(text):
    return [(option.name, option.value) for option in split_options(text, ValueError)]


def test_options_are_split_at_commas_outside_brackets():
    assert options("a:1, b:[1:2,3:4] ,c:True") == [("a", "1"), ("b", "[1:2,3:4]"), ("c", "True")]
    assert options("") == []


@pytest.mark.parametrize("text", ["a", "a:", ":1", "a:1,,b:2", "a:[1:2", "a:1:2", "a=1"])
def test_anything_else_is_refused_with_what_was_found(text):
    with pytest.raises(ValueError, match="expected options like name:value,name:value, found"):
        options(text)


def test_a_list_is_pairs():
    [option] = split_options("a:[256:1,>:8]", ValueError)
    assert option.is_list
    assert list(option.pairs()) == [("256", "1"), (">", "8")]
