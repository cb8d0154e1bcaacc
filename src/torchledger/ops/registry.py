"""The one registry: name of an operation -> the function of its sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from torchledger.ops.piece import Piece

Rule: TypeAlias = Callable[..., tuple[Piece, ...]]
_R = TypeVar("_R", bound=Rule)

#: Every rule by name. One more is one line: `rules["my_op"] = my_op`, or `@rule` above its definition.
rules: dict[str, Rule] = {}


def rule(function: _R) -> _R:
    """Enter a function of sizes into `rules` under its own name and hand it back.

    >>> from torchledger.ledger import Work
    >>> @rule
    ... def hadamard(n: int) -> tuple[Piece, ...]:
    ...     return (Piece("hadamard", "pointwise", Work.of_flops(n)),)
    >>> rules["hadamard"](8)[0].work.flops_full
    8
    >>> del rules["hadamard"]
    """
    rules[function.__name__] = function
    return function
