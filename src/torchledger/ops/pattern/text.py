"""Patterns as einops writes them: `b s (h d) -> b h s d`, read into groups of axes.

The grammar is that of einops 0.8 (https://einops.rocks, Rogozhnikov, ICLR 2022): names apart by spaces, one level of
parentheses for an axis that is made of several, `1` for an axis of one element, another number for an axis without a
name, one `...` for the axes that are left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from torchledger.ops.pattern.errors import PatternError, refuse

Operation: TypeAlias = Literal["rearrange", "repeat", "reduce"]
Group: TypeAlias = tuple[str, ...]

#: Stands for the axes that `...` covers until their number is known.
ELLIPSIS = "..."


@dataclass(frozen=True, slots=True)
class Pattern:
    """Both sides of an arrow: dimensions, each a group of axes, outermost first.

    An axis without a name is written `3#0`: its size, and a number that tells it from all others.

    Attributes:
        text: as it was written.
        left: dimensions of the tensor.
        right: dimensions of the result.
    """

    text: str
    left: tuple[Group, ...]
    right: tuple[Group, ...]

    @property
    def left_axes(self) -> tuple[str, ...]:
        """The tensor's axes, outermost first."""
        return tuple(axis for group in self.left for axis in group)

    @property
    def right_axes(self) -> tuple[str, ...]:
        """The result's axes, outermost first."""
        return tuple(axis for group in self.right for axis in group)

    @property
    def has_ellipsis(self) -> bool:
        """Whether the number of dimensions is still open."""
        return ELLIPSIS in self.left_axes

    def with_ellipsis_of(self, count: int) -> Pattern:
        """The pattern with `...` replaced by so many axes.

        >>> parse("b ... d -> d b (...)", "rearrange").with_ellipsis_of(2).right
        (('d',), ('b',), ('...0', '...1'))
        """
        axes = tuple(f"{ELLIPSIS}{number}" for number in range(count))
        left = tuple(
            one for group in self.left for one in (((axis,) for axis in axes) if group == (ELLIPSIS,) else (group,))
        )
        right: list[Group] = []
        for group in self.right:
            if group == (ELLIPSIS,) and not _is_grouped(self.text.partition("->")[2]):
                right.extend((axis,) for axis in axes)
            else:
                right.append(tuple(one for axis in group for one in (axes if axis == ELLIPSIS else (axis,))))
        return Pattern(self.text, left, tuple(right))


def size_of_nameless(axis: str) -> int | None:
    """The size of an axis without a name; nothing for a name.

    >>> size_of_nameless("3#0"), size_of_nameless("h")
    (3, None)
    """
    size, mark, _ = axis.partition("#")
    return int(size) if mark else None


def parse(text: str, operation: Operation) -> Pattern:
    """Read a pattern and hold it against the rules of an operation.

    `rearrange` has the same axes on both sides, `repeat` may have new ones on the right, `reduce` leaves some out.

    >>> parse("b s (h d) -> b h s d", "rearrange").left
    (('b',), ('s',), ('h', 'd'))

    Raises:
        PatternError: the text is no pattern, or breaks a rule of the operation; every rule that it breaks.
    """
    sides = text.split("->")
    if len(sides) != 2:
        raise PatternError(f"a pattern has one `->` between the axes before and after, got {text!r}")
    numbers = iter(range(len(text)))
    pattern = Pattern(text, *(_side(side, text, numbers) for side in sides))
    refuse(_mistakes(pattern, operation))
    return pattern


def _mistakes(pattern: Pattern, operation: Operation) -> list[str]:
    left, right = pattern.left_axes, pattern.right_axes
    mistakes = [
        f"{axis!r} stands twice on one side of {pattern.text!r}"
        for axis in dict.fromkeys((*left, *right))
        if left.count(axis) > 1 or right.count(axis) > 1
    ]
    if ELLIPSIS in left and _is_grouped(pattern.text.partition("->")[0]):
        mistakes.append(f"`...` cannot stand in parentheses on the left of {pattern.text!r}")
    gone = [axis for axis in dict.fromkeys(left) if axis not in right]
    new = [axis for axis in dict.fromkeys(right) if axis not in left]
    if ELLIPSIS in new:
        mistakes.append(f"`...` stands on the right of {pattern.text!r} and not on the left")
        new.remove(ELLIPSIS)
    if gone and operation != "reduce":
        mistakes.append(f"{operation} keeps every axis: {_listed(gone)} of the left side is missing on the right")
    if new and operation != "repeat":
        mistakes.append(f"{operation} makes no new axis: {_listed(new)} of the right side is not on the left")
    return mistakes


def _is_grouped(side: str) -> bool:
    """Whether `...` stands in parentheses, where it is a part of a dimension and not some dimensions."""
    before = side[: side.find(ELLIPSIS)]
    return before.count("(") > before.count(")")


def _listed(axes: list[str]) -> str:
    return ", ".join(axis.partition("#")[0] for axis in axes)


def _side(side: str, text: str, numbers: Iterator[int]) -> tuple[Group, ...]:
    """The groups of one side."""
    groups: list[Group] = []
    inside: list[str] | None = None
    for word in _words(side, text):
        if word == "(":
            if inside is not None:
                raise PatternError(f"parentheses inside parentheses in {text!r}: an axis is made of names alone")
            inside = []
        elif word == ")":
            if inside is None:
                raise PatternError(f"`)` without `(` in {text!r}")
            groups.append(tuple(inside))
            inside = None
        else:
            axes = _axes(word, text, numbers)
            if inside is None:
                groups.append(axes)
            else:
                inside.extend(axes)
    if inside is not None:
        raise PatternError(f"`(` without `)` in {text!r}")
    return tuple(groups)


def _words(side: str, text: str) -> list[str]:
    words = side.replace("(", " ( ").replace(")", " ) ").replace(ELLIPSIS, f" {ELLIPSIS} ").split()
    if words.count(ELLIPSIS) > 1:
        raise PatternError(f"`...` stands more than once on one side of {text!r}")
    return words


def _axes(word: str, text: str, numbers: Iterator[int]) -> Group:
    """The axes of a word: one, or none for `1`."""
    if word == ELLIPSIS:
        return (ELLIPSIS,)
    if word.isdecimal():
        if int(word) == 0:
            raise PatternError(f"an axis has at least 1 element, got 0 in {text!r}")
        return () if int(word) == 1 else (f"{int(word)}#{next(numbers)}",)
    check_name(word, text)
    return (word,)


def check_name(word: str, text: str) -> None:
    """Refuse what is no name of an axis.

    Raises:
        PatternError: it is no identifier, or has an underscore at either end.
    """
    if not word.isidentifier() or word.startswith("_") or word.endswith("_"):
        raise PatternError(
            f"{word!r} in {text!r} is no name of an axis: letters, digits and `_` inside, apart by spaces"
        )
