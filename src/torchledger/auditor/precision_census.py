"""`Census`: how many numbers of a tensor have which exponent, and so what any format would make of them.

A floating-point number is 2^e · (1 + f) with 0 <= f < 1. Counting e is enough to say, exactly and for every format at
once, how many numbers round to zero and how many lose digits as subnormals: all of these limits are powers of two. It
also holds after a factor 2^k, which only shifts the counts. Zeros, infinities and NaN stand apart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from torchledger.formats import NumberFormat, get

__all__ = ["FORMATS", "Census", "Lost", "beyond", "count", "merged"]

#: What is asked of every tensor: the formats in which something of an ordinary model can be lost.
FORMATS: tuple[str, ...] = ("BF16", "FP16", "FP8_E5M2", "FP8_E4M3")

_BITS: dict[int, torch.dtype] = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_PIECE = 1 << 20  # numbers that are looked at together: what is made meanwhile stays in the cache


@dataclass(frozen=True, slots=True)
class Lost:
    """How many numbers a format does not hold as they are; those that were 0, infinite or NaN before do not count.

    Attributes:
        to_zero: round to 0: at most half of the smallest subnormal number, a tie to the even 0.
        subnormal: below the smallest normal number and not 0: fewer digits than the format has.
        overflow: beyond the largest number by half a step or more: infinite, or cut to it.
        of: numbers that are finite and not 0.
    """

    to_zero: int = 0
    subnormal: int = 0
    overflow: int = 0
    of: int = 0

    def __add__(self, other: Lost) -> Lost:
        return Lost(
            self.to_zero + other.to_zero,
            self.subnormal + other.subnormal,
            self.overflow + other.overflow,
            self.of + other.of,
        )

    def share(self, name: str) -> float:
        """`to_zero`, `subnormal` or `overflow` as a share; 0 where there is no number that could be lost."""
        found: int = getattr(self, name)
        return found / self.of if self.of else 0.0


@dataclass(frozen=True, slots=True)
class Census:
    """The numbers of a tensor by exponent.

    Attributes:
        format: what they are stored in (`FP32`).
        elements: all of them.
        zeros, infinities, nans: those without an exponent.
        counts: exponent e -> numbers with 2^e <= |x| < 2^(e + 1), subnormal ones too.
        powers: exponent e -> numbers that are 2^e exactly, which decide ties.
        largest: the largest finite magnitude; 0 where there is none.
        overflows: format -> numbers beyond it.
    """

    format: str
    elements: int = 0
    zeros: int = 0
    infinities: int = 0
    nans: int = 0
    counts: Mapping[int, int] = field(default_factory=dict)
    powers: Mapping[int, int] = field(default_factory=dict)
    largest: float = 0.0
    overflows: Mapping[str, int] = field(default_factory=dict)

    @property
    def numbers(self) -> int:
        """Numbers that are finite and not 0."""
        return self.elements - self.zeros - self.infinities - self.nans

    @property
    def subnormals(self) -> int:
        """Numbers that are subnormal in the format that they are stored in."""
        smallest = get(self.format).smallest_exponent
        return sum(number for exponent, number in self.counts.items() if exponent < smallest)

    def lost(self, number_format: str | NumberFormat, *, shift: int = 0) -> Lost:
        """What a format would lose of the numbers times 2^shift.

        With a shift, numbers in the topmost power of two count as beyond only where the whole power is; whether the
        largest overflows is `overflows_at`.
        """
        fmt = get(number_format)
        smallest, largest = fmt.smallest_exponent - shift, fmt.largest_exponent - shift
        half_of_smallest = smallest - fmt.mantissa_bits - 1
        to_zero = sum(n for e, n in self.counts.items() if e < half_of_smallest) + self.powers.get(half_of_smallest, 0)
        small = sum(n for e, n in self.counts.items() if e < smallest)
        overflow = self.overflows.get(fmt.name, 0)
        if shift:
            overflow = sum(n for e, n in self.counts.items() if e > largest)
        return Lost(to_zero, small - to_zero, overflow, self.numbers)

    def overflows_at(self, number_format: str | NumberFormat, shift: int) -> bool:
        """Whether the largest number times 2^shift is beyond a format."""
        limit, is_beyond = beyond(get(number_format))
        scaled = math.ldexp(self.largest, shift)
        return scaled >= limit if is_beyond else scaled > limit

    def largest_shift(self, number_format: str | NumberFormat) -> int | None:
        """The largest k with which no number times 2^k is beyond a format; nothing where all are 0."""
        if not self.largest:
            return None
        shift = get(number_format).largest_exponent - math.frexp(self.largest)[1] + 2
        while self.overflows_at(number_format, shift):
            shift -= 1
        return shift


def beyond(fmt: NumberFormat) -> tuple[float, bool]:
    """From which magnitude on a number rounds beyond a format's largest, and whether that one itself does.

    It is half a step above the largest, where a tie goes to the even pattern.

    >>> beyond(get("fp16")), beyond(get("e4m3"))
    ((65520.0, True), (464.0, False))
    """
    half_step = math.ldexp(1, fmt.largest_exponent - fmt.mantissa_bits - 1)
    return fmt.max + half_step, bool(fmt.largest_pattern & 1)


@torch.no_grad()
def count(tensor: Tensor) -> Census:
    """The census of a floating-point tensor, its bits read as integers.

    Args:
        tensor: of any shape, FP64, FP32, FP16, BF16 or FP8; sparse ones are counted with their zeros.
    """
    fmt = get(str(tensor.dtype))
    dense = tensor.detach()
    dense = dense.to_dense() if dense.layout != torch.strided else dense
    flat = dense.reshape(-1)
    empty = Census(fmt.name)
    return merged((empty, *(_piece(flat[begin : begin + _PIECE], fmt) for begin in range(0, len(flat), _PIECE))))


def merged(censuses: Iterable[Census]) -> Census:
    """One census of all; of more than one format, it is that of the first."""
    several = tuple(censuses)
    assert several, "a census of nothing has no format"
    counts: Counter[int] = Counter()
    powers: Counter[int] = Counter()
    overflows: Counter[str] = Counter()
    for each in several:
        counts.update(each.counts)
        powers.update(each.powers)
        overflows.update(each.overflows)
    return Census(
        several[0].format,
        sum(each.elements for each in several),
        sum(each.zeros for each in several),
        sum(each.infinities for each in several),
        sum(each.nans for each in several),
        dict(sorted(counts.items())),
        dict(sorted(powers.items())),
        max(each.largest for each in several),
        dict(overflows),
    )


def _piece(values: Tensor, fmt: NumberFormat) -> Census:
    bits = values.view(_BITS[values.element_size()])
    if values.element_size() < 4:  # small integers are sign-extended by a shift
        bits = bits.to(torch.int32)
    fields = (1 << fmt.exponent_bits) - 1
    exponents = (bits >> fmt.mantissa_bits) & fields
    mantissas = bits & (1 << fmt.mantissa_bits) - 1
    by_field = torch.bincount(exponents, minlength=fields + 1).tolist()
    counts = {field - fmt.bias: number for field, number in enumerate(by_field) if number and field > 0}
    powers: dict[int, int] = {}
    is_whole = mantissas == 0
    zeros = infinities = nans = 0
    if bool(is_whole.any()):
        whole = torch.bincount(exponents[is_whole], minlength=fields + 1).tolist()
        powers = {field - fmt.bias: number for field, number in enumerate(whole) if number and field > 0}
        zeros = whole[0]
    if by_field[0] > zeros:
        _subnormal(mantissas[(exponents == 0) & ~is_whole], fmt, counts, powers)
    if by_field[fields]:
        infinities, nans = _unreal(values, fmt, counts, powers)
    largest = _largest(values, has_unreal=bool(infinities + nans))
    return Census(
        fmt.name, values.numel(), zeros, infinities, nans, counts, powers, largest, _overflows(values, largest)
    )


def _subnormal(mantissas: Tensor, fmt: NumberFormat, counts: dict[int, int], powers: dict[int, int]) -> None:
    """Add the subnormal numbers: each is its mantissa field times the smallest one."""
    fractions, exponents = torch.frexp(mantissas.double())
    least = fmt.smallest_exponent - fmt.mantissa_bits
    for found, into in ((exponents, counts), (exponents[fractions == 0.5], powers)):  # frexp of 2^n
        for exponent, number in enumerate(torch.bincount(found).tolist()):
            if number:
                into[least + exponent - 1] = into.get(least + exponent - 1, 0) + number


def _unreal(values: Tensor, fmt: NumberFormat, counts: dict[int, int], powers: dict[int, int]) -> tuple[int, int]:
    """Infinities and NaN, taken from the topmost power of two, which E4M3 uses for numbers as well."""
    wide = values if values.element_size() > 1 else values.float()
    infinities, nans = int(torch.isinf(wide).sum()), int(torch.isnan(wide).sum())
    top = (1 << fmt.exponent_bits) - 1 - fmt.bias
    counts[top] -= infinities + nans
    if infinities:
        powers[top] -= infinities
    for each in (counts, powers):
        if not each.get(top, 1):
            del each[top]
    return infinities, nans


def _largest(values: Tensor, *, has_unreal: bool) -> float:
    wide = values if values.element_size() > 1 else values.float()
    if has_unreal:
        wide = torch.nan_to_num(wide, nan=0.0, posinf=0.0, neginf=0.0)
    low, high = torch.aminmax(wide)
    return max(-low.item(), high.item())


def _overflows(values: Tensor, largest: float) -> dict[str, int]:
    found = {}
    for name in FORMATS:
        limit, is_beyond = beyond(get(name))
        if largest >= limit:
            magnitudes = values.double().abs()
            beyond_it = magnitudes >= limit if is_beyond else magnitudes > limit
            found[name] = int((beyond_it & torch.isfinite(magnitudes)).sum())
    return found
