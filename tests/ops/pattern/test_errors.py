import pytest

from torchledger.ops.pattern.errors import PatternError, refuse


def test_nothing_wrong_is_no_error():
    """A pattern without mistakes passes."""
    assert refuse([]) is None


def test_every_mistake_is_a_line():
    """All mistakes are told at once."""
    with pytest.raises(PatternError, match=r"^one\ntwo$"):
        refuse(["one", "two"])
