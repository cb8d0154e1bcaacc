"""Einsum equations, as torch writes them (`bshd,bthd->bhst`) or as einops does (`b s h d, b t h d -> b h s t`)."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torchledger.ops.pattern.errors import PatternError, refuse
from torchledger.ops.pattern.text import check_name


@dataclass(frozen=True, slots=True)
class Equation:
    """What is multiplied, and which indices are left.

    Attributes:
        text: as it was written.
        operands: indices of each operand; one that stands twice in an operand walks its diagonal.
        output: indices of the result; all others are summed over.
        letters: the letter that torch sees for each index.
    """

    text: str
    operands: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    letters: Mapping[str, str]

    @property
    def indices(self) -> tuple[str, ...]:
        """Every index once, in the order of its first appearance."""
        return tuple(dict.fromkeys(name for operand in self.operands for name in operand))

    @property
    def summed(self) -> tuple[str, ...]:
        """The indices that are summed over, in torch's order: by letter, upper case first."""
        return tuple(sorted((name for name in self.indices if name not in self.output), key=self.letters.__getitem__))

    def written(self, operands: Iterable[Iterable[str]], output: Iterable[str]) -> str:
        """An equation of some of its indices, in torch's letters."""
        sides = ",".join("".join(self.letters[name] for name in operand) for operand in operands)
        return f"{sides}->{''.join(self.letters[name] for name in output)}"

    @property
    def in_letters(self) -> str:
        """The equation as torch is given it.

        >>> parse_equation("batch row, batch column -> row column", ["batch"]).in_letters
        'ab,ac->bc'
        """
        return self.written(self.operands, self.output)


def parse_equation(text: str, known: Iterable[str] = ()) -> Equation:
    """Read an equation.

    A word of several letters is one name where names stand apart by spaces or one of `known` is such a word, and a row
    of letters otherwise. Letters are kept as they are, which is the order in which torch sums; names become letters in
    the order of their appearance, as einops does it.

    Args:
        text: operands apart by commas, `->`, the result. Without an arrow the result is torch's: every letter that
            stands once, in the order of the alphabet, upper case first.
        known: names whose sizes are known.

    >>> parse_equation("bij,bjk->bik").operands
    (('b', 'i', 'j'), ('b', 'j', 'k'))
    >>> parse_equation("ij,jk").output
    ('i', 'k')

    Raises:
        PatternError: the text is no equation; every mistake.
    """
    left, *right = text.split("->")
    if len(right) > 1:
        raise PatternError(f"an equation has one `->` before its result, got {text!r}")
    if "..." in text:
        raise PatternError(f"`...` in {text!r} says that there is something and not how much; name its dimensions")
    if "(" in text or ")" in text:
        raise PatternError(f"einsum cuts and joins no dimensions: no parentheses in {text!r}; rearrange does that")
    sides = [side.split() for side in (*left.split(","), *right)]
    if _are_letters(sides, set(known)):
        sides = [[letter for word in side for letter in word] for side in sides]
    operands = tuple(tuple(side) for side in (sides[:-1] if right else sides))
    all_names = [name for operand in operands for name in operand]
    output = tuple(sides[-1]) if right else tuple(sorted(n for n in set(all_names) if all_names.count(n) == 1))
    refuse(_mistakes(text, operands, output))
    return Equation(text, operands, output, _lettered(dict.fromkeys(all_names)))


def _are_letters(sides: list[list[str]], known: set[str]) -> bool:
    words = [word for side in sides for word in side]
    apart = any(len(side) > 1 for side in sides)
    return not apart and not any(len(word) > 1 and word in known for word in words)


def _mistakes(text: str, operands: tuple[tuple[str, ...], ...], output: tuple[str, ...]) -> list[str]:
    mistakes = []
    for name in dict.fromkeys((*(name for operand in operands for name in operand), *output)):
        try:
            check_name(name, text)
        except PatternError as error:
            mistakes.append(str(error))
    mistakes.extend(
        f"{name!r} stands twice in the result of {text!r}" for name in dict.fromkeys(output) if output.count(name) > 1
    )
    mistakes.extend(
        f"{name!r} of the result of {text!r} is in no operand"
        for name in dict.fromkeys(output)
        if not any(name in operand for operand in operands)
    )
    if len({name for operand in operands for name in operand}) > len(string.ascii_letters):
        mistakes.append(f"{text!r} has more than {len(string.ascii_letters)} indices, torch has letters for no more")
    return mistakes


def _lettered(names: Iterable[str]) -> dict[str, str]:
    names = tuple(names)
    if all(re.fullmatch("[A-Za-z]", name) for name in names):
        return {name: name for name in names}
    return dict(zip(names, string.ascii_letters, strict=False))
