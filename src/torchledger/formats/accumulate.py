"""What summing in a narrow format loses: the sum as hardware makes it, and the bound of theory beside it.

The bound of s = Σ xᵢ in n - 1 additions of unit roundoff u (half of epsilon; epsilon itself unless rounding is to
nearest) is Σ|xᵢ| times

- sequential, to nearest: (n - 1)·u, for any n (Rump, Error estimation of floating-point summation and dot product,
  BIT 52, 2012);
- pairwise: (1 + u)^ceil(log2 n) - 1, as each term passes through that many roundings at most (Higham, Accuracy and
  Stability of Numerical Algorithms, 2nd edition, section 4.2), or (n - 1)·u to nearest where that is less
  (Jeannerod and Rump, Improved error bounds for inner products, SIAM J. Matrix Anal. Appl. 34, 2013);
- sequential in another rounding: γ(n - 1), with γ(k) = k·u / (1 - k·u), while k·u < 1 (section 3.1),

and what rounding the terms and the result may add. There is none if anything overflows, or if the accumulator does not
hold every number of the terms' format: these theorems add numbers that it holds, so that no sum of two underflows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Literal, TypeAlias

from torchledger.formats.catalog import get
from torchledger.formats.encode import encode
from torchledger.formats.format import FormatError, NumberFormat
from torchledger.formats.rounding import Rational, Rounding

Order = Literal["sequential", "pairwise"]

#: Format of terms and result, of the running sum, order, rounding.
_Way: TypeAlias = tuple[NumberFormat, NumberFormat, Order, Rounding]

_LONGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Accumulation:
    """A sum as a format makes it.

    Attributes:
        format: of the terms and of the result.
        accumulator: of the running sum.
        order: `sequential` or `pairwise`.
        terms: how many.
        value: the result; infinite or NaN where the sum overflowed.
        exact: the sum of the terms as they were given.
        error: value - exact; None where the value is no number.
        bound: the largest error that theory allows, the rounding of the terms included; None where it says nothing.
        stalled_after: the term (counted from 1) after which a sequential sum of equal terms never moved again, though
            more were to come; None where it did not stall, or the terms differ.
    """

    format: str
    accumulator: str
    order: Order
    terms: int
    value: float
    exact: Fraction
    error: Fraction | None
    bound: Fraction | None
    stalled_after: int | None


def accumulate(
    terms: Iterable[Rational],
    number_format: str | NumberFormat,
    order: Order = "sequential",
    *,
    accumulator: str | NumberFormat | None = None,
    rounding: Rounding = "nearest-even",
    randoms: Iterable[Rational] | None = None,
) -> Accumulation:
    """Sum numbers as a machine does that rounds after every addition.

    Terms are rounded to the format first (to nearest), added in the format of the accumulator, and the result is
    rounded to the format of the terms. *Sequential* adds one after the other; *pairwise* adds the sum of the first half
    to the sum of the second, each made so. The bound is the one at the head of this file.

    >>> accumulate([1.0] * 300, "bf16").value, accumulate([1.0] * 300, "bf16", accumulator="fp32").value
    (256.0, 300.0)

    Args:
        terms: finite numbers, at most 2^20.
        number_format: of the terms and the result.
        order: of the additions.
        accumulator: format of the running sum; that of the terms if none is given.
        rounding: of the additions and of the result.
        randoms: for `stochastic`, numbers of [0, 1): one for each addition, and one for the result if the accumulator
            has another format.

    Raises:
        FormatError: a format is unknown or no floating-point one; a term is infinite or NaN; there are none, or too
            many; or the random numbers run out.
    """
    fmt, wide = get(number_format), get(accumulator if accumulator is not None else number_format)
    given = list(terms)
    if not 0 < len(given) <= _LONGEST:
        raise FormatError(f"a sum has from 1 to {_LONGEST:,} terms, got {len(given):,}")
    exact = [_finite(term) for term in given]
    held = [encode(term, fmt).value for term in exact]
    add = _Adder(wide, rounding, randoms)
    made = _sequential(held, add) if order == "sequential" else _pairwise(held, add)
    value = add.rounded(made, fmt) if wide is not fmt else made
    allowed = (
        None
        if add.overflowed
        else _bound(
            sum(map(abs, map(Fraction, held)), Fraction(0)) if all(map(math.isfinite, held)) else None,
            sum((abs(Fraction(h) - x) for h, x in zip(held, exact, strict=True) if math.isfinite(h)), Fraction(0)),
            len(given),
            (fmt, wide, order, rounding),
        )
    )
    return _accumulation((fmt, wide, order, rounding), len(given), value, sum(exact, Fraction(0)), allowed)


def accumulate_equal(
    term: Rational,
    count: int,
    number_format: str | NumberFormat,
    order: Order = "sequential",
    *,
    accumulator: str | NumberFormat | None = None,
    rounding: Rounding = "nearest-even",
) -> Accumulation:
    """The sum of equal numbers, exactly as `accumulate` makes it, for any count.

    Between two powers of two a sum of equal terms moves by the same amount each time (after a tie, once its last bit is
    even), so one jump crosses as many terms as lie there.

    >>> made = accumulate_equal(1, 4096, "bf16")
    >>> made.value, made.stalled_after, made.error
    (256.0, 256, Fraction(-3840, 1))

    Raises:
        FormatError: as for `accumulate`; the count is below 1; or the rounding is stochastic, where sums differ.
    """
    fmt, wide = get(number_format), get(accumulator if accumulator is not None else number_format)
    if count < 1:
        raise FormatError(f"a sum has at least 1 term, not {count}")
    if rounding == "stochastic":
        raise FormatError("a sum with stochastic rounding depends on its random numbers: give them to `accumulate`")
    exact = _finite(term)
    held = encode(exact, fmt).value
    add = _Adder(wide, rounding, None)
    stalled = None
    if order == "sequential":
        made, stalled = _equal_sequential(held, count, add)
    else:
        made = _equal_pairwise(held, count, add)
    value = add.rounded(made, fmt) if wide is not fmt else made
    allowed = None
    if math.isfinite(held) and not add.overflowed:
        each = Fraction(held)
        allowed = _bound(abs(each) * count, abs(each - exact) * count, count, (fmt, wide, order, rounding))
    return _accumulation((fmt, wide, order, rounding), count, value, exact * count, allowed, stalled=stalled)


class _Adder:
    """Addition that rounds, and remembers whether anything was beyond the largest number."""

    def __init__(self, wide: NumberFormat, rounding: Rounding, randoms: Iterable[Rational] | None) -> None:
        self._format, self._rounding = wide, rounding
        self._randoms = iter(randoms or ())
        self.overflowed = False

    def __call__(self, a: float, b: float) -> float:
        if not (math.isfinite(a) and math.isfinite(b)):
            return a + b
        total = Fraction(a) + Fraction(b)
        return self.rounded(total, self._format)

    def anew(self) -> _Adder:
        """The same addition with nothing to remember, to look ahead with; of no use where random numbers are drawn."""
        return _Adder(self._format, self._rounding, None)

    def rounded(self, number: Rational, fmt: NumberFormat) -> float:
        """A number in a format, one random number further where the mode takes them."""
        random = None
        if self._rounding == "stochastic":
            random = next(self._randoms, None)
            if random is None:
                raise FormatError("the random numbers for stochastic rounding ran out")
        made = encode(number, fmt, "cast", self._rounding, random)
        self.overflowed = self.overflowed or made.overflow
        return made.value


def _sequential(terms: Sequence[float], add: _Adder) -> float:
    total = terms[0]
    for term in terms[1:]:
        total = add(total, term)
    return total


def _pairwise(terms: Sequence[float], add: _Adder) -> float:
    if len(terms) == 1:
        return terms[0]
    half = (len(terms) + 1) // 2
    return add(_pairwise(terms[:half], add), _pairwise(terms[half:], add))


def _equal_pairwise(term: float, count: int, add: _Adder) -> float:
    @cache
    def total(n: int) -> float:
        return term if n == 1 else add(total((n + 1) // 2), total(n // 2))

    return total(count)


def _equal_sequential(term: float, count: int, add: _Adder) -> tuple[float, int | None]:
    """The sum, and the term after which it no longer moved."""
    total, done, ahead = term, 1, add.anew()
    while done < count:
        after = add(total, term)
        if after == total or not math.isfinite(after):
            return (after, done if after == total and term != 0 and math.isfinite(after) else None)
        total, done = after, done + 1
        step = ahead(total, term) - total  # exact: both lie on one grid or beside its end
        again = ahead(total + step, term) - (total + step) if math.isfinite(step) else math.nan
        jump = min(_steps_within_binade(total, step), count - done) if step and step == again else 0
        if jump > 1:
            total, done = total + jump * step, done + jump
    return total, None


def _steps_within_binade(total: float, step: float) -> int:
    """How often a sum may move by this step and still lie below the next power of two, less one."""
    _, exponent = math.frexp(total)
    room = Fraction(2) ** exponent - abs(Fraction(total))
    return max(0, math.ceil(room / abs(Fraction(step))) - 2)


def _bound(
    magnitude: Fraction | None,
    terms_error: Fraction,
    count: int,
    way: _Way,
) -> Fraction | None:
    fmt, wide, order, rounding = way
    if magnitude is None or not _holds(wide, fmt):
        return None
    nearest = rounding in {"nearest-even", "nearest-away"}
    unit = Fraction(wide.epsilon) / (2 if nearest else 1)
    every = (count - 1) * unit
    if order == "pairwise":
        share = (1 + unit) ** (count - 1).bit_length() - 1
        share = min(share, every) if nearest else share
    elif nearest:
        share = every
    elif every < 1:
        share = every / (1 - every)
    else:
        return None
    in_sum = magnitude * share
    if wide is fmt:
        return terms_error + in_sum
    last = Fraction(fmt.epsilon) / (2 if nearest else 1)
    smallest = Fraction(fmt.smallest_subnormal) / (2 if nearest else 1)
    return terms_error + in_sum + max((magnitude + in_sum) * last, smallest)


def _holds(wide: NumberFormat, fmt: NumberFormat) -> bool:
    """Whether every number of a format, up to the other's largest, is one of the other."""
    return wide.mantissa_bits >= fmt.mantissa_bits and wide.smallest_subnormal <= fmt.smallest_subnormal


def _accumulation(
    way: _Way, count: int, value: float, exact: Fraction, bound: Fraction | None, *, stalled: int | None = None
) -> Accumulation:
    fmt, wide, order, _ = way
    finite = math.isfinite(value)
    return Accumulation(
        format=fmt.name,
        accumulator=wide.name,
        order=order,
        terms=count,
        value=value,
        exact=exact,
        error=Fraction(value) - exact if finite else None,
        bound=bound if finite else None,
        stalled_after=stalled,
    )


def _finite(term: Rational) -> Fraction:
    if isinstance(term, float) and not math.isfinite(term):
        raise FormatError(f"a term of a sum is a finite number, not {term}")
    return Fraction(*term.as_integer_ratio())
