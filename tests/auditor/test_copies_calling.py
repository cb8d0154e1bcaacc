"""Which call of Python an operation comes from."""

import sys

import pytest

from torchledger.auditor import copies_calling
from torchledger.auditor.copies_calling import Calling, calling


class Looking:
    """Stands where a tensor would, and looks out from inside a call."""

    seen: Calling

    def contiguous(self) -> "Looking":
        """A method."""
        self.seen = calling(sys._getframe(1))
        return self

    def __matmul__(self, _other: object) -> "Looking":
        return self.contiguous()


def test_method_and_expression_as_written():
    """The innermost call's name, and the text on one line, whatever its spaces."""
    x = Looking()
    (x,   x)[0].contiguous()  # fmt: skip
    assert x.seen == Calling("contiguous", "(x, x)[0].contiguous()")


def test_long_expressions_keep_their_end():
    """A hundred characters at most, the call itself among them."""
    x = Looking()
    [x, "a long list of words" * 1, "another long list of words, and then some more of them, so that it is long"][0].contiguous()  # fmt: skip  # noqa: E501
    assert len(x.seen.code) == 100
    assert x.seen.code.endswith(".contiguous()")


def test_code_without_source():
    """What was never written to a file has no text."""
    x = Looking()
    exec("x.contiguous()", {"x": x})  # noqa: S102  # the case itself
    assert x.seen.code in {"", 'exec("x.contiguous()", {"x": x})'}


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("x.to(y)", "to"),
        ("cat((a, b))", "cat"),
        ("a @ b", "@"),
        ("x[1:]", "[]"),
        ("a + b", ""),
        ("not (", ""),
    ],
)
def test_names_of_functions(text: str, function: str):
    """A method's, a function's, an operator's; nothing where it is no call."""
    assert copies_calling._function(text) == function


def test_nothing_outside():
    """No frame, no call."""
    assert calling(None) == Calling()
