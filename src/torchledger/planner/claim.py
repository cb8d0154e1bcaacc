"""Audit of a claim: which convention, which peak and which model turn a speed into the MFU that somebody printed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torchledger.machine import Chip
from torchledger.planner.errors import PlanError
from torchledger.planner.printed import Printed
from torchledger.planner.reading import Reading, hardware_readings, model_readings, shape_assumed
from torchledger.planner.suspects import Peak, Variant, own_peak, peaks, variants
from torchledger.spec import ModelSpec
from torchledger.units import format_flops, format_flops_per_s, format_percent

_KINDS = ("selective", "full")


@dataclass(frozen=True, slots=True)
class Claim:
    """What was printed or logged, of one chip.

    Attributes:
        tokens_per_s: tokens that one chip trains on in a second.
        flops_per_s: FLOP/s of one chip, by whatever convention.
        mfu: model FLOPs utilisation, a share.
        hfu: hardware FLOPs utilisation, a share.
    """

    tokens_per_s: Printed | None = None
    flops_per_s: Printed | None = None
    mfu: Printed | None = None
    hfu: Printed | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A convention and what it makes of the speed.

    Attributes:
        reading: the convention.
        flops_per_s: FLOP/s of one chip; nothing where no tokens/s are claimed.
        utilisation: over the chip's dense peak of the format; likewise.
        tokens_per_s: what the claimed FLOP/s would mean in tokens; nothing where none are claimed.
        reproduces: names of the claimed figures that it gives within their rounding.
    """

    reading: Reading
    flops_per_s: float | None
    utilisation: float | None
    tokens_per_s: float | None
    reproduces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A way to the printed utilisation.

    Attributes:
        figure: `MFU` or `HFU`.
        conventions: those that give it, all by the same peak and model; `the printed TFLOP/s` where no tokens/s are
            claimed that a convention could turn into FLOP/s.
        peak: what the speed is divided by.
        variant: the model that was counted.
        value: the utilisation that it gives (of the first convention).
        num_changes: how many of peak, model and recompute are not as they should be; 0 is the plain reading.
    """

    figure: str
    conventions: tuple[str, ...]
    peak: Peak
    variant: Variant
    value: float
    num_changes: int

    @property
    def text(self) -> str:
        """The explanation as a sentence."""
        model = "" if self.variant.what == "" else f", counting {self.variant.what}"
        return (
            f"{self.figure} {format_percent(self.value)}: {', '.join(self.conventions)}, over {self.peak.what}{model}"
        )


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit found.

    Attributes:
        rows: model FLOPs by every convention.
        hardware: hardware FLOPs, with recompute.
        peak: the chip's dense peak of the format.
        explanations: ways to the printed utilisation, the plainest first; of the plainest kind only.
        findings: what is wrong or follows from the figures alone.
    """

    rows: tuple[Row, ...]
    hardware: tuple[Row, ...]
    peak: Peak
    explanations: tuple[Explanation, ...]
    findings: tuple[str, ...]
    is_possible: bool


def audit(spec: ModelSpec, sequence_length: int, chip: Chip, number_format: str, claim: Claim) -> Audit:
    """Hold a claim against every named convention.

    Raises:
        PlanError: neither tokens/s nor FLOP/s are claimed.
        NoPeak: the chip has no peak in the format.
    """
    if claim.tokens_per_s is None and claim.flops_per_s is None:
        raise PlanError(
            "an audit needs a speed: --tokens-per-s, --tflops, or --step-time with --batch; a utilisation alone has"
            " nothing to be held against"
        )
    peak = own_peak(chip, number_format)
    rows = tuple(_rows(model_readings(spec, sequence_length), claim, peak, ("mfu",)))
    hardware = tuple(_rows(hardware_readings(spec, sequence_length, _KINDS), claim, peak, ("hfu",)))
    explanations = tuple(_explain(spec, sequence_length, chip, number_format, claim))
    wrong = tuple(_impossible(rows, claim, peak))
    findings = (
        *wrong,
        *_implied(spec, sequence_length, chip, number_format, claim),
        *_missed((*rows, *hardware), explanations, claim, peak),
        *_misshapen(spec, explanations),
    )
    return Audit(rows, hardware, peak, explanations, findings, not wrong)


def _rows(readings: Iterable[Reading], claim: Claim, peak: Peak, shares: tuple[str, ...]) -> Iterator[Row]:
    for reading in readings:
        rate = claim.tokens_per_s
        flops_per_s = None if rate is None else reading.flops_per_token * rate.value
        share = None if flops_per_s is None else flops_per_s / peak.flops_per_s
        means = None if claim.flops_per_s is None else claim.flops_per_s.value / reading.flops_per_token
        found = []
        for name, printed, value in (
            ("TFLOP/s", claim.flops_per_s, flops_per_s),
            ("MFU", claim.mfu if "mfu" in shares else None, share),
            ("HFU", claim.hfu if "hfu" in shares else None, share),
        ):
            if printed is None or value is None or rate is None:
                continue
            if printed.is_reproduced_by(value, rate.relative):
                found.append(name)
        yield Row(reading, flops_per_s, share, means, tuple(found))


def _explain(
    spec: ModelSpec, sequence_length: int, chip: Chip, number_format: str, claim: Claim
) -> Iterator[Explanation]:
    """Ways to the printed utilisation, from the plain one to those with most changed; only the plainest are given."""
    over = peaks(chip, number_format)
    if claim.tokens_per_s is None:
        assert claim.flops_per_s is not None
        yield from _divided(claim, claim.flops_per_s, over, Variant("", spec))
        return
    if claim.mfu is None and claim.hfu is None:
        return
    counted = tuple(
        (each, model_readings(each.spec, sequence_length), hardware_readings(each.spec, sequence_length, _KINDS))
        for each in variants(spec)
    )
    for figure, printed in (("MFU", claim.mfu), ("HFU", claim.hfu)):
        if printed is None:
            continue
        found = list(_ways(figure, printed, claim.tokens_per_s, counted, over))
        fewest = min((each.num_changes for each in found), default=0)
        plainest = (each for each in found if each.num_changes == fewest)
        told = set()
        for each in sorted(plainest, key=lambda each: abs(each.value - printed.value)):
            same = (each.conventions, each.variant.what, each.peak.is_own)
            if same not in told or not each.peak.is_own:  # the right peak's rounded neighbours say nothing new
                yield each
            told.add(same)


def _divided(claim: Claim, rate: Printed, over: tuple[Peak, ...], variant: Variant) -> Iterator[Explanation]:
    """The printed FLOP/s over each peak that makes them the printed utilisation; only the right one where it does."""
    for figure, printed in (("MFU", claim.mfu), ("HFU", claim.hfu)):
        if printed is None:
            continue
        values = [(peak, rate.value / peak.flops_per_s) for peak in over]
        found = [(peak, value) for peak, value in values if printed.is_reproduced_by(value, rate.relative)]
        right = [each for each in found if each[0].is_own][:1]
        for peak, value in right or found:
            yield Explanation(figure, ("the printed TFLOP/s",), peak, variant, value, int(not peak.is_own))


def _ways(
    figure: str,
    printed: Printed,
    rate: Printed,
    counted: tuple[tuple[Variant, tuple[Reading, ...], tuple[Reading, ...]], ...],
    over: tuple[Peak, ...],
) -> Iterator[Explanation]:
    for variant, model, hardware in counted:
        for is_hardware, readings in ((False, model), (True, hardware)):
            for peak in over:
                values = {each.name: each.flops_per_token * rate.value / peak.flops_per_s for each in readings}
                names = tuple(name for name, value in values.items() if printed.is_reproduced_by(value, rate.relative))
                if names:
                    changes = bool(variant.what) + (not peak.is_own) + (is_hardware != (figure == "HFU"))
                    yield Explanation(figure, names, peak, variant, values[names[0]], changes)


def _impossible(rows: tuple[Row, ...], claim: Claim, peak: Peak) -> Iterator[str]:
    """What cannot be, whatever the convention."""
    for name, share in (("MFU", claim.mfu), ("HFU", claim.hfu)):
        if share is not None and share.value - share.half > 1:
            yield (
                f"impossible: {name} {format_percent(share.value)} is more than the peak, so that peak is not what the"
                f" chip runs at; that of {peak.what} is {format_flops_per_s(peak.flops_per_s)}"
            )
    rate = claim.flops_per_s
    if rate is not None and rate.value - rate.half > peak.flops_per_s:
        told = format_percent(rate.value / peak.flops_per_s)
        yield f"impossible: {format_flops_per_s(rate.value)} is {told} of {peak.what}"
    exact = next(row for row in rows if row.reading.convention.endswith("exact"))
    if exact.utilisation is not None and exact.utilisation > 1:
        assert claim.tokens_per_s is not None
        yield (
            f"impossible: so many tokens take {format_percent(exact.utilisation)} of {peak.what} even where every"
            " masked score is left out"
        )


def _misshapen(spec: ModelSpec, explanations: tuple[Explanation, ...]) -> Iterator[str]:
    """Where what gives the printed figure is a formula that does not fit the model: the figure is as wrong as it."""
    names = dict.fromkeys(name for each in explanations for name in each.conventions)
    for name in names:
        if wrong := shape_assumed(spec, name):
            yield f"{name} takes for granted {wrong}: what it gives is not this model's"


def _implied(spec: ModelSpec, sequence_length: int, chip: Chip, number_format: str, claim: Claim) -> Iterator[str]:
    """What two printed figures say by themselves."""
    rate, tokens = claim.flops_per_s, claim.tokens_per_s
    for name, share in (("MFU", claim.mfu), ("HFU", claim.hfu)):
        if share is not None and rate is not None:
            implied = rate.value / share.value
            slack = rate.relative + share.relative
            close = [each.what for each in peaks(chip, number_format) if abs(each.flops_per_s / implied - 1) <= slack]
            told = ", or ".join(close) if close else "which is no peak of this chip"
            yield f"TFLOP/s over {name} is a peak of {format_flops_per_s(implied)}: {told}"
    if rate is not None and tokens is not None:
        implied, slack = rate.value / tokens.value, rate.relative + tokens.relative
        readings = (*model_readings(spec, sequence_length), *hardware_readings(spec, sequence_length, _KINDS))
        close = [each.name for each in readings if abs(each.flops_per_token / implied - 1) <= slack]
        told = ", ".join(close) if close else f"which no convention gives for this model; {_nearest(readings, implied)}"
        yield f"TFLOP/s over tokens/s is {format_flops(implied)} a token: {told}"


def _missed(rows: tuple[Row, ...], explanations: tuple[Explanation, ...], claim: Claim, peak: Peak) -> Iterator[str]:
    """Where nothing gives a printed utilisation: the convention that comes nearest to it, and how near."""
    rate = claim.tokens_per_s
    for figure, printed in (("MFU", claim.mfu), ("HFU", claim.hfu)):
        if rate is None or printed is None or any(each.figure == figure for each in explanations):
            continue
        readings = [row.reading for row in rows if figure == "HFU" or row.reading.recompute == "none"]
        told = _nearest(readings, printed.value * peak.flops_per_s / rate.value)
        yield f"{figure} {format_percent(printed.value)} is given by no convention over {peak.what}; {told}"


def _nearest(readings: Iterable[Reading], flops_per_token: float) -> str:
    """The convention that comes nearest to so many FLOPs a token, and how far off it is."""
    nearest = min(readings, key=lambda each: abs(each.flops_per_token / flops_per_token - 1))
    off = nearest.flops_per_token / flops_per_token - 1
    way = "more" if off > 0 else "less"
    return f"nearest is {nearest.name}, {format_percent(abs(off))} {way} ({format_flops(nearest.flops_per_token)})"
