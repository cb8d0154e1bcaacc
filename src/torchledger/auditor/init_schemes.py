"""Which rule a matrix was drawn by: each scheme's standard deviation, and a test of whether a sample can come from it.

A sample of n values with kurtosis k has a standard deviation that is known to sigma·sqrt((k - 1) / (4n)): the delta
method on the variance, whose own variance is (mu4 - sigma⁴) / n (Cramér 1946, section 27.4). A scheme is a match where
the sample lies within `LIMIT` of these errors, for the shape that the sample has: what a truncation cuts off has to be
counted, and a uniform draw of the same standard deviation has less error than a normal one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

Shape: TypeAlias = Literal["normal", "uniform", "cut at 2", "cut at 3", "constant", "other"]

LIMIT = 4.5  # errors; a sound matrix goes beyond once in 150,000
GPT2_STD = 0.02  # Radford et al. 2019, section 2.3, and the released code
_SURE = 1e-4  # chance at which a shape is ruled out
_KURTOSIS_LIMIT = 6.0  # errors


@dataclass(frozen=True, slots=True)
class Sample:
    """What was measured of a matrix's values.

    Attributes:
        count: values looked at.
        mean: of them.
        std: of them, about their mean.
        kurtosis: fourth moment about the mean over the squared variance; 3 is normal's.
        largest: the largest distance from 0.
    """

    count: int
    mean: float
    std: float
    kurtosis: float
    largest: float

    @property
    def error(self) -> float:
        """Standard error of `std` as a share of it."""
        return math.sqrt(max(self.kurtosis - 1, 1e-3) / (4 * max(self.count, 1)))


@dataclass(frozen=True, slots=True)
class Scheme:
    """A rule for the standard deviation of a matrix.

    Attributes:
        name: as the field calls it.
        formula: of fan-in `in` and fan-out `out`.
        std: before any truncation.
    """

    name: str
    formula: str
    std: float


@dataclass(frozen=True, slots=True)
class Match:
    """A scheme held against a sample.

    Attributes:
        scheme: the rule.
        std: what it says for the sample's shape, after truncation.
        errors: how many standard errors the sample lies above it.
    """

    scheme: Scheme
    std: float
    errors: float

    @property
    def holds(self) -> bool:
        """Whether the sample can come from it."""
        return abs(self.errors) <= LIMIT


def truncated_share(cut: float) -> float:
    """Standard deviation of a standard normal cut at ±cut: sqrt(1 - 2·cut·phi(cut) / (2·Phi(cut) - 1)).

    What is cut lies in units of the distribution's own standard deviation: a cut at an absolute ±2 of weights of 0.02
    cuts nothing. (Johnson, Kotz and Balakrishnan 1994, "Continuous Univariate Distributions", section 10.1.)

    >>> round(truncated_share(2), 5), round(truncated_share(3), 5)
    (0.87963, 0.98658)
    """
    return math.sqrt(1 - 2 * cut * _density(cut) / math.erf(cut / math.sqrt(2)))


def truncated_kurtosis(cut: float) -> float:
    """Kurtosis of a standard normal cut at ±cut: its fourth moment is 3·m2 - 2·cut³·phi(cut) / (2·Phi(cut) - 1).

    >>> round(truncated_kurtosis(2), 3), round(truncated_kurtosis(3), 3)
    (2.366, 2.829)
    """
    second = truncated_share(cut) ** 2
    return (3 * second - 2 * cut**3 * _density(cut) / math.erf(cut / math.sqrt(2))) / second**2


def shapes(sample: Sample) -> tuple[Shape, ...]:
    """Every shape that a sample can have; small ones do not tell a normal from a slightly cut one."""
    if sample.std == 0:
        return ("constant",)
    reach = sample.largest / sample.std
    found = [
        shape
        for shape, bound, kurtosis in _BOUNDED
        if reach <= bound * (1 + 4 * sample.error + 0.005) and _near(sample, kurtosis)
    ]
    # A normal sample of this size would reach further, with all but certainty: then it is none.
    bound = min((bound for shape, bound, _ in _BOUNDED if shape in found), default=math.inf)
    if _near(sample, 3.0) and sample.count * math.log(max(math.erf(bound / math.sqrt(2)), 1e-300)) > math.log(_SURE):
        found.insert(0, "normal")
    return tuple(found) or ("other",)


def schemes(fan_in: int, fan_out: int, *, writes: int = 0, declared: float | None = None) -> Iterator[Scheme]:
    """The rules that a matrix may follow.

    Args:
        fan_in: values that one output sums over.
        fan_out: outputs.
        writes: how many matrices of the model write to its residual stream, where this is one of them; else 0.
        declared: the standard deviation that the model's configuration names (`initializer_range`).
    """
    if declared:
        yield Scheme("initializer_range", f"{declared:g}", declared)
        if writes:
            yield Scheme("initializer_range, residual", f"{declared:g}/sqrt({writes})", declared / math.sqrt(writes))
    yield Scheme("fan_in", "1/sqrt(in)", 1 / math.sqrt(fan_in))  # LeCun et al. 1998, section 4.6
    yield Scheme("xavier", "sqrt(2/(in+out))", math.sqrt(2 / (fan_in + fan_out)))  # Glorot and Bengio 2010, eq. 12
    yield Scheme("kaiming", "sqrt(2/in)", math.sqrt(2 / fan_in))  # He et al., arXiv:1502.01852, eq. 10
    yield Scheme("kaiming, fan-out", "sqrt(2/out)", math.sqrt(2 / fan_out))  # the same, eq. 14
    yield Scheme("torch default", "1/sqrt(3·in)", 1 / math.sqrt(3 * fan_in))  # kaiming_uniform_ with a = sqrt(5)
    yield Scheme("small", "sqrt(2/(5·in))", math.sqrt(0.4 / fan_in))  # Nguyen and Salazar, arXiv:1910.05895, eq. 6
    yield Scheme("mup, output", "1/in", 1 / fan_in)  # Yang et al., arXiv:2203.03466, table 3
    yield Scheme("gpt2", "0.02", GPT2_STD)
    if writes:
        yield Scheme("gpt2, residual", f"0.02/sqrt({writes})", GPT2_STD / math.sqrt(writes))
    yield Scheme("unscaled", "1", 1.0)  # torch.randn, and what nn.Embedding begins with


def matches(sample: Sample, candidates: Iterator[Scheme]) -> tuple[Match, ...]:
    """Every scheme held against the sample in the shape that fits it best, the nearest first."""
    if sample.std == 0:
        return ()
    found = []
    possible = shapes(sample)
    for scheme in candidates:
        if scheme.name == "torch default" and "uniform" not in possible:
            continue  # it is a uniform draw
        # A truncated draw may have been corrected to the scheme's own standard deviation, as JAX and TensorFlow do.
        stds = {scheme.std * share for shape in possible for share in (1.0, _SHARES.get(shape, 1.0))}
        found.append(min((match(sample, scheme, std) for std in stds), key=lambda m: abs(m.errors)))
    return tuple(sorted(found, key=lambda m: abs(m.errors)))


def match(sample: Sample, scheme: Scheme, std: float | None = None) -> Match:
    """One scheme held against the sample.

    Args:
        sample: what was measured.
        scheme: the rule.
        std: what it says after truncation; nothing is the scheme's own.
    """
    std = scheme.std if std is None else std
    # A format's rounding moves a standard deviation by less than a thousandth; a sample so large would notice.
    error = math.hypot(sample.error, 2e-4) * std
    return Match(scheme, std, (sample.std - std) / error)


def _density(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _near(sample: Sample, kurtosis: float) -> bool:
    return abs(sample.kurtosis - kurtosis) <= _KURTOSIS_LIMIT * math.sqrt(24 / max(sample.count, 1)) + 0.01


_BOUNDED: tuple[tuple[Shape, float, float], ...] = (
    ("uniform", math.sqrt(3), 1.8),
    ("cut at 2", 2 / truncated_share(2), truncated_kurtosis(2)),
    ("cut at 3", 3 / truncated_share(3), truncated_kurtosis(3)),
)
_SHARES: dict[Shape, float] = {"cut at 2": truncated_share(2), "cut at 3": truncated_share(3)}
