"""`Product`: a matrix product whose sizes are known for any number of sequences, tensor and context parallel ranks.

The sizes are read off reference layouts: what doubles with the sequences are tokens, what halves on twice the ranks is
divided by tensor parallelism, the rest stays. A product whose sizes do anything else is none, and is left to its floor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from torchledger.ledger import CONTRACTIONS, Line
from torchledger.planner.efficiency import Chipset, product_s


class Size(NamedTuple):
    """One side of a product.

    Attributes:
        alone: for one sequence on one rank.
        is_tokens: it grows with the sequences, and context parallel ranks split it.
        is_divided: tensor parallel ranks split it.
    """

    alone: int
    is_tokens: bool
    is_divided: bool


class Product(NamedTuple):
    """b products [m, k] @ [k, n].

    Attributes:
        sizes: of b, m, n and k.
        rate: FLOP/s of a large product in its format.
        is_weight_gradient: its depth is tokens.
        times: how often.
    """

    sizes: tuple[Size, ...]
    rate: float
    is_weight_gradient: bool
    times: float

    def seconds(self, sequences: float, ranks: int, chips: Chipset) -> float:
        """Of so many sequences of a context parallel rank (a share of one where it splits them)."""
        b, m, n, k = (
            math.ceil(size.alone * (sequences if size.is_tokens else 1) / (ranks if size.is_divided else 1))
            for size in self.sizes
        )
        return self.times * product_s(
            b, m, n, k, rate=self.rate, chips=chips, is_weight_gradient=self.is_weight_gradient
        )

    def least_s(self, ranks: int) -> float:
        """Of one sequence at the full rate."""
        divided = math.prod(ranks for size in self.sizes if size.is_divided)
        return self.times * 2 * math.prod(size.alone for size in self.sizes) / (divided * self.rate)


class Seen(NamedTuple):
    """One line in the reference layouts: 1 rank, `split` ranks (1 and 2 sequences each), and as many ranks as heads."""

    lines: tuple[Line, Line, Line, Line]
    barest: Line
    split: int
    heads: int


def product_of(seen: Seen, chips: Chipset) -> Product | None:
    """The line as a product, if it is one whose sizes are known."""
    line = seen.lines[0]
    if line.kind not in CONTRACTIONS or ".experts" in line.module or ".core" in line.module:
        return None
    rate = chips.rate(line.number_format)
    names = dict(line.shape).keys()
    if rate is None or not {"m", "n", "k"} <= names or len({each.times for each in seen.lines}) > 1:
        return None
    sizes = tuple(_size([_side(each, name) for each in (*seen.lines, seen.barest)], seen) for name in "bmnk")
    known = tuple(size for size in sizes if size is not None)
    if len(known) < len(sizes):
        return None
    return Product(known, rate, line.gradient_of == "weight", float(line.times))


def _side(line: Line, name: str) -> int:
    side: int = math.ceil(dict(line.shape).get(name, 1))
    return side


def _size(values: Sequence[int], seen: Seen) -> Size | None:
    """From one side in the reference layouts.

    >>> seen = Seen((), None, 2, 8)  # type: ignore[arg-type]
    >>> _size([512, 1024, 512, 1024, 512], seen), _size([64, 64, 32, 32, 8], seen), _size([7, 7, 5, 5, 1], seen)
    (Size(alone=512, is_tokens=True, is_divided=False), Size(alone=64, is_tokens=False, is_divided=True), None)
    """
    alone, twice, shared = values[:3]
    is_tokens, is_divided = twice != alone, shared != alone
    expected = [alone, alone * (2 if is_tokens else 1)]
    over = seen.split if is_divided else 1
    expected += [each // over for each in expected] + [alone // (seen.heads if is_divided else 1)]
    return Size(alone, is_tokens, is_divided) if list(values) == expected and not alone % over else None
