"""`PatternError`: what is wrong with a pattern, its sizes or the shapes beside it."""

from __future__ import annotations

from collections.abc import Sequence


class PatternError(ValueError):
    """A pattern that cannot be read, or does not fit its sizes; every mistake at once, one a line."""


def refuse(mistakes: Sequence[str]) -> None:
    """Raise all mistakes as one error, where there are any.

    Raises:
        PatternError: there is at least one.
    """
    if mistakes:
        raise PatternError("\n".join(mistakes))
