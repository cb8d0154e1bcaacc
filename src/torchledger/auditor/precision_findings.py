"""What of a step's numbers harms or breaks a run as it is configured, and what would if its format were another."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from torchledger.auditor.precision_census import Census
from torchledger.auditor.precision_operations import Operations, Softmax
from torchledger.auditor.precision_recipe import NOISY, Check
from torchledger.auditor.precision_scale import LossScale
from torchledger.auditor.precision_seen import Seen
from torchledger.auditor.precision_step import Step
from torchledger.auditor.precision_updates import Moved
from torchledger.auditor.subject import Subject
from torchledger.ledger import Finding

__all__ = ["Evidence", "found"]

_GRADIENTS = ("activation gradient", "weight gradient")
_MANY = 0.5  # of a tensor's gradients, or of all updates: fewer than half may be noise near 0
_STUCK = 0.9  # of one parameter's updates: it does not learn, however small it is beside the others
_FEW = 0.001  # of all gradients
_ROW_OFF = 0.005  # of a softmax's sum: BF16 alone may be off by 2^-8, when all entries are alike
_SUM_OFF = 0.05  # of a sum that is added up in 16 bit, one number after the other
_NATS_OFF = 0.01  # of a logarithm of a softmax
_ORDER = ("error", "warning", "note")


@dataclass(slots=True)
class Evidence:
    """All that was seen.

    Attributes:
        reference: the step in FP32 throughout.
        seen: its forward and backward pass.
        kinds: kind of tensor -> place -> census.
        scale: the loss scale that FP16 needs.
        whole_numbers: of optimizer state that is kept as integers, which are not counted.
        own: the step as it is configured, where that is not FP32 throughout.
        own_operations: of its forward pass.
        own_told: what it is stored in, where not FP32.
        masters: parameters of which the optimizer keeps an FP32 copy.
        moved: what updates do to each parameter.
        epsilons: parameters whose optimizer's epsilon is 0 in their format.
        checks: each recipe that was run, against the reference.
        advised: the last of them.
        not_run: recipes for which this machine has no kernels, with what it said.
    """

    reference: Step
    seen: Seen
    kinds: Mapping[str, Mapping[str, Census]]
    scale: LossScale
    whole_numbers: int = 0
    own: Step | None = None
    own_operations: Operations | None = None
    own_told: str = ""
    masters: Collection[str] = ()
    moved: tuple[Moved, ...] = ()
    epsilons: Mapping[str, float] = field(default_factory=dict)
    checks: dict[str, Check] = field(default_factory=dict)
    advised: Check | None = None
    not_run: list[str] = field(default_factory=list)


def found(subject: Subject, evidence: Evidence) -> tuple[Finding, ...]:
    """The findings, worst first."""
    each = (
        *_unreal(evidence),
        *_broken(subject, evidence),
        *_epsilon(evidence),
        *_logits(subject, evidence),
        *_frozen(evidence),
        *_vanishing(subject, evidence),
        *_softmaxes(evidence),
        *_noisy(subject, evidence),
        *_apart(evidence),
    )
    return tuple(sorted(each, key=lambda finding: _ORDER.index(finding.severity)))


def _finding(severity: str, place: str, message: str, remedy: str, **evidence: object) -> Finding:
    return Finding("precision", severity, place or "(the model)", message, remedy, evidence)  # type: ignore[arg-type]  # one of the three


def _unreal(evidence: Evidence) -> Iterator[Finding]:
    """Infinities and NaN with FP32 throughout: no format is to blame."""
    for kind in ("weight", "activation", *_GRADIENTS, "optimizer state"):
        broken = {place: c.infinities + c.nans for place, c in evidence.kinds.get(kind, {}).items()}
        broken = {place: number for place, number in broken.items() if number}
        if broken:
            place, number = next(iter(broken.items()))
            yield _finding(
                "error",
                place,
                f"{number:,} infinite or NaN numbers of its {kind} in FP32 throughout"
                + (f", and in {len(broken) - 1} more places" if len(broken) > 1 else ""),
                "no format is to blame: look for a division by 0, a logarithm of 0 or a learning rate that is too high",
                places=len(broken),
                numbers=sum(broken.values()),
            )
            return


def _broken(subject: Subject, evidence: Evidence) -> Iterator[Finding]:
    """The first operation of the configured step that makes infinity or NaN, where FP32 does not."""
    broken = evidence.own_operations.broken if evidence.own_operations is not None else None
    if broken is None or evidence.seen.operations.broken is not None:
        return
    yield _finding(
        "error",
        broken.place,
        f"{broken.operation} makes infinity or NaN of finite numbers in {broken.format}; FP32 does not",
        "run this module outside of autocast, in FP32"
        + (", or train in bf16, whose largest number is FP32's" if subject.precision == "fp16" else ""),
        operation=broken.operation,
        format=broken.format,
    )


def _epsilon(evidence: Evidence) -> Iterator[Finding]:
    if not evidence.epsilons:
        return
    name, epsilon = next(iter(evidence.epsilons.items()))
    unreal = evidence.own.unreal if evidence.own is not None else {}
    numbers = sum(unreal.values())
    became = f": {numbers:,} weights are infinite or NaN after one step" if numbers else ""
    yield _finding(
        "error",
        next(iter(unreal), name),
        f"the optimizer's epsilon {epsilon:g} is 0 in FP16, which {len(evidence.epsilons)} parameters are stored in, "
        f"and where the second moment is 0 too it divides by 0{became}",
        "keep weights and optimizer state in FP32 and autocast to fp16, or use an epsilon of at least 6e-8 (2^-24)",
        epsilon=epsilon,
        parameters=len(evidence.epsilons),
        unreal_weights=numbers,
    )


def _logits(subject: Subject, evidence: Evidence) -> Iterator[Finding]:
    beyond = {
        place: logits
        for place, logits in evidence.seen.operations.logits.items()
        if logits.census.overflows_at("FP16", 0)
    }
    if not beyond:
        return
    place, worst = max(beyond.items(), key=lambda each: each[1].census.largest)
    number = sum(each.census.overflows.get("FP16", 0) for each in beyond.values())
    yield _finding(
        "error" if subject.precision == "fp16" else "warning",
        place,
        f"attention logits reach {worst.census.largest:,.0f}: {number:,} are beyond FP16, which ends at 65,504, "
        f"in {len(beyond)} module{'s' if len(beyond) > 1 else ''}",
        "normalise queries and keys (qk_norm), cap the logits, or shrink their weights; a softmax over such logits has "
        "one entry and no gradient in any format",
        largest=worst.census.largest,
        beyond=number,
        modules=len(beyond),
    )


def _frozen(evidence: Evidence) -> Iterator[Finding]:
    stored = [each for each in evidence.moved if each.stored in {"BF16", "FP16"} and not each.master]
    wanted, frozen = sum(each.wanted for each in stored), sum(each.frozen for each in stored)
    if not wanted or not frozen:
        return
    share, worst = frozen / wanted, max(stored, key=Moved.share)
    several = sorted(stored, key=Moved.share, reverse=True)[:3]
    told = ", ".join(f"{each.name} {each.share():.1%}" for each in several)
    yield _finding(
        "warning" if share > _MANY or worst.share() > _STUCK else "note",
        worst.name,
        f"{share:.1%} of the updates of {worst.stored} weights ({frozen:,} of {wanted:,}) are at most half a unit in "
        f"the last place and change nothing: {told}",
        "keep an FP32 copy of the weights (bf16-master, or FP32 weights with autocast), or round stochastically",
        frozen=frozen,
        wanted=wanted,
        share=share,
        update_over_weight=worst.ratio,
    )


def _vanishing(subject: Subject, evidence: Evidence) -> Iterator[Finding]:
    """Gradients that FP16 cannot hold: harmful where the run is in FP16, and worth knowing elsewhere."""
    is_fp16, scale = subject.precision == "fp16", evidence.scale
    exponent = round(_log2(subject.loss_scale)) if is_fp16 else 0
    if is_fp16 and scale.exponent is not None:
        exponent = min(exponent, scale.exponent)
    lost: list[tuple[float, float, str, str]] = []
    numbers = held = 0
    for kind in _GRADIENTS:
        for place, census in evidence.kinds.get(kind, {}).items():
            share = census.lost("FP16", shift=exponent).share("to_zero")
            numbers += census.numbers
            if share > _MANY:
                lost.append((share * census.numbers, share, place, kind))
                held += census.numbers
    if held <= _FEW * numbers:
        return  # a few biases that the loss does not depend on, as that of keys, whose gradients are rounding errors
    _, share, place, kind = max(lost)
    best = evidence.kinds[kind][place].lost("FP16", shift=scale.exponent or 0).share("to_zero")
    saves = f"2^{scale.exponent}, the largest that overflows nowhere, leaves {best:.1%} here" if scale.value else ""
    keeps = "" if best <= _MANY else "; keep this module in FP32, or train in bf16, whose smallest numbers are FP32's"
    yield _finding(
        "warning" if is_fp16 else "note",
        place,
        f"{share:.1%} of its {kind}s {'are' if is_fp16 else 'would be'} 0 in FP16 at loss scale 2^{exponent} "
        f"(at most 2^-25 = 3e-8 each), and more than half of those of {len(lost)} tensors",
        f"a loss scale of {saves}{keeps}",
        share=share,
        tensors=len(lost),
        loss_scale_exponent=scale.exponent,
        share_at_best_scale=best,
    )


def _log2(scale: float) -> float:
    import math

    return math.log2(scale) if scale > 0 else 0.0


def _softmaxes(evidence: Evidence) -> Iterator[Finding]:
    """Softmaxes whose result is in 16 bit and off, and those that would be if they were added up in it: the worst."""
    ran = evidence.own_operations.softmaxes if evidence.own_operations is not None else {}
    low = {place.rpartition(":")[0]: seen for place, seen in ran.items() if seen.off is not None and not seen.is_log}
    logs = {place.rpartition(":")[0]: seen for place, seen in ran.items() if seen.off is not None and seen.is_log}
    remedy = "give it FP32: softmax(x.float(), -1), or cross_entropy(logits.float(), targets)"
    if coarse := {place: seen for place, seen in logs.items() if (seen.off or 0.0) > _NATS_OFF}:
        place, seen = max(coarse.items(), key=lambda each: each[1].off or 0.0)
        message = f"log_softmax of rows of {seen.length:,} is off by {seen.off:.2g} nats an entry in {seen.format}"
        yield _finding("warning", place, message + _more(coarse), remedy, **_told(seen))
    if off := {place: seen for place, seen in low.items() if (seen.off or 0.0) > _ROW_OFF}:
        place, seen = max(off.items(), key=lambda each: each[1].off or 0.0)
        message = f"softmax of rows of {seen.length:,} in {seen.format}: a row's sum is off by {seen.off:.1%}"
        yield _finding("warning", place, message + _more(off), remedy, **_told(seen))
    if stops := {place: seen for place, seen in low.items() if place not in off and _sum_off(seen) > _SUM_OFF}:
        place, seen = max(stops.items(), key=lambda each: _sum_off(each[1]))
        message = (
            f"softmax of rows of {seen.length:,} in {seen.format}: added up in it one after the other, a row comes to "
            f"{seen.sums[seen.format]:.3g}"
        )
        remedy = "nothing with torch's own kernels, which add in FP32; a kernel of your own has to do so as well"
        yield _finding("note", place, message + _more(stops), remedy, **_told(seen))


def _sum_off(seen: Softmax) -> float:
    """How far a row's sum is from 1 that is added up in the format of the result; 0 where that is not known."""
    return abs(seen.sums.get(seen.format, 1.0) - 1)


def _more(places: Collection[str]) -> str:
    return f"; the worst of {len(places)} modules" if len(places) > 1 else ""


def _told(seen: Softmax) -> dict[str, object]:
    return {"off": seen.off, "length": seen.length, "format": seen.format, "sum": seen.sums.get(seen.format)}


def _noisy(subject: Subject, evidence: Evidence) -> Iterator[Finding]:
    """Outputs whose differences a 16-bit format rounds away: large numbers that vary little."""
    if subject.precision == "fp32":
        return
    kind = subject.precision.upper()
    noisy = {place: share for place, noise in evidence.seen.noise.items() if (share := noise.share(kind) or 0) > NOISY}
    if noisy:
        place, share = next(iter(noisy.items()))  # the first that ran: those after it may have it from there
        yield _finding(
            "warning",
            place,
            f"rounding its output to {kind} adds {share:.0%} of what the output varies by from row to row"
            + (f"; the first of {len(noisy)} modules" if len(noisy) > 1 else ""),
            "take off what is common to all rows before, or keep the module in FP32",
            noise=share,
            modules=len(noisy),
        )


def _apart(evidence: Evidence) -> Iterator[Finding]:
    check = evidence.checks.get("as configured")
    if check is None or check.is_near:
        return
    cosine = "none" if check.gradient_cosine is None else f"{check.gradient_cosine:.3f}"
    yield _finding(
        "warning",
        "",
        f"one step as configured is far from FP32's: its loss is {check.loss:.5g} where FP32's is "
        f"{evidence.reference.loss:.5g}, the cosine of their gradients {cosine}",
        _instead(evidence.advised),
        loss_difference=check.loss_difference,
        gradient_cosine=check.gradient_cosine,
    )


def _instead(advised: Check | None) -> str:
    return f"train so: {advised.recipe.told()}" if advised is not None else "train in FP32"
