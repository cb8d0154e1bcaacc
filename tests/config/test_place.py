import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.config.place import dotted, split_dotted

KEY = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6)


@given(st.lists(KEY.filter(lambda key: "=" not in key), min_size=1, max_size=4))
def test_a_path_reads_back(path: list[str]):
    """Keys that TOML would quote are quoted, so that the dotted text is the path again."""
    assert split_dotted(dotted(tuple(path))) == tuple(path)


@pytest.mark.parametrize("text", ["", "a..b", "a b", "a=1", "a\nb", "[a]", ".a"])
def test_what_is_no_path(text: str):
    """A text that TOML would not take as a key is refused."""
    with pytest.raises(ValueError):  # noqa: PT011  (tomllib's error is a plain ValueError)
        split_dotted(text)


def test_list_positions_stand_in_brackets():
    """A position in a list follows its key directly."""
    assert dotted(("a", 0, "b", 1, 2)) == "a[0].b[1][2]"
    assert dotted(()) == ""
