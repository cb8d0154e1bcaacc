"""Findings about signals: growth by depth, closed gates, norms of nothing, and the loss before the first step."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal

from torchledger.auditor.init_depth import Stack, rate
from torchledger.auditor.init_gates import Gate, GateKind
from torchledger.auditor.init_signals import Signals
from torchledger.ledger import Finding

_EXPLODES, _VANISHES = 100.0, 1e-3  # over a whole stack
_FASTER = 1.5  # by one layer: less is no growth that more layers would make a harm
_WITHOUT = 10.0  # over all layers but the worst: a small embedding before a normalized stack is one large step
_CLOSED: dict[GateKind, tuple[float, str, str]] = {
    "relu": (0.5, "of its ReLUs are closed for every position: they learn nothing", "--try kaiming, biases of 0"),
    "tanh": (
        0.5,
        "of its tanh are within 0.01 of ±1, where the gradient is a fiftieth",
        "smaller weights: --try xavier",
    ),
    "sigmoid": (0.5, "of its sigmoids are within 0.01 of 0 or 1", "smaller weights: --try xavier"),
    "softmax": (
        0.9,
        "is the mean of the largest probability: it has chosen before it learnt",
        "scores of size 1: 1/sqrt(head size) and --try fan_in",
    ),
}
_FAR_LOSS, _OFF_LOSS = 2.0, 0.5  # nats above the logarithm of the vocabulary


def judged_signals(signals: Signals, stacks: Iterable[Stack], zeros: Collection[str] = ()) -> Iterator[Finding]:
    """What harms or breaks a run, of one step.

    Args:
        signals: the step.
        stacks: of the model.
        zeros: parameters that are 0 throughout, which is told of them elsewhere.
    """
    yield from _not_finite(signals)
    for stack in stacks:
        yield from _growth(stack)
    yield from _gates(signals.gates)
    yield from _norms(signals)
    yield from _positions(signals, zeros)


def judged_loss(loss: float, vocab_size: int, logit_std: float | None) -> Iterator[Finding]:
    """The first loss against the logarithm of the vocabulary.

    Logits of standard deviation s, independent of the targets, have a loss of about ln(V) + s²/2 (the mean of a
    log-normal), so that how far above ln(V) it is says how large the head begins.

    Args:
        loss: in nats a token.
        vocab_size: V.
        logit_std: s, where it was seen.
    """
    above = loss - math.log(vocab_size)
    facts = {"loss": loss, "ln_vocab": math.log(vocab_size), "logit_std": logit_std}
    size = "" if logit_std is None else f"; logits of std {logit_std:.3g} alone make it s²/2 = {logit_std**2 / 2:.3g}"
    if logit_std is not None and above > 2 * max(logit_std**2 / 2, _OFF_LOSS):
        size += (
            ", so that the rest is in what they say: a table tied to the head knows its own token again in the stream"
        )
    told = f"the first loss is {loss:.4g}, ln({vocab_size:,}) = {math.log(vocab_size):.4g}"
    if not math.isfinite(loss):
        return
    if above > _OFF_LOSS:
        severity: Literal["note", "warning"] = "warning" if above > _FAR_LOSS else "note"
        yield _finding(
            severity,
            "loss",
            f"{told}: {above:.3g} nats above{size}",
            "a smaller head: 1/fan_in where it is not tied, 0.25/sqrt(fan_in) where it is",
            facts,
        )
    elif above < -_OFF_LOSS:
        yield _finding(
            "note",
            "loss",
            f"{told}: {-above:.3g} nats below",
            "weights that are trained already, few tokens, or targets that are among the inputs",
            facts,
        )


def _not_finite(signals: Signals) -> Iterator[Finding]:
    for call in sorted(signals.calls, key=lambda each: -1 if each.ended is None else each.ended):
        if call.writes is not None and call.writes.num_bad:
            yield _finding(
                "error",
                call.place or "model",
                f"{call.writes.num_bad:,} values that it gives are infinite or NaN; it is the first module to",
                "smaller weights: --try fan_in",
                {"num_values": call.writes.num_bad},
            )
            return
    if not math.isfinite(signals.loss):
        yield _finding("error", "loss", f"the loss is {signals.loss}", "see what it is computed from", {})
        return
    bad = [name for name, size in signals.gradients.items() if size is not None and size.num_bad]
    if bad:
        yield _finding(
            "error",
            bad[-1],
            f"gradients of {len(bad)} parameters are infinite or NaN, this the first on the way back",
            "smaller weights: --try fan_in",
            {"num_parameters": len(bad)},
        )


def _growth(stack: Stack) -> Iterator[Finding]:
    name = f"{stack.name or 'model'} ({stack.num_layers} × {stack.kind})"
    for index, level in enumerate(stack.levels[1:-1], 1):  # a last one of zeros is a way to begin a head
        if level.signal.rms == 0 and stack.levels[index - 1].signal.rms != 0:
            yield _finding(
                "error",
                level.place,
                "is the first to give nothing but 0",
                "see its weights, and what it reads",
                {"depth": index},
            )
            break
    ways = (
        ("signal", "from layer to layer", stack.forward, stack.forward_steps),
        ("gradient", "from layer to layer on its way back", stack.backward, stack.backward_steps),
    )
    for what, where, whole, steps in ways:
        one = rate(steps)
        if not whole or one is None:
            continue
        told = f"{one:.3g} times as large {where}, {whole:.3g} times over {len(steps)}"
        facts = {"rate": one, "growth": whole, "num_layers": len(steps)}
        remedy = "--try fan_in, or kaiming before ReLUs"
        if whole > _EXPLODES and one > _FASTER and whole / max(steps) > _WITHOUT:
            yield _finding("warning", name, f"the {what} explodes: {told}", remedy, facts)
        elif whole < _VANISHES and one < 1 / _FASTER and whole / min(steps) < 1 / _WITHOUT:
            yield _finding("warning", name, f"the {what} vanishes: {told}", remedy, facts)


def _gates(gates: Sequence[Gate]) -> Iterator[Finding]:
    for kind, (limit, told, remedy) in _CLOSED.items():
        found = [gate for gate in gates if gate.kind == kind and gate.share > limit]
        if not found:
            continue
        worst = max(found, key=lambda gate: gate.share)
        more = f" (so are {len(found) - 1} more)" if len(found) > 1 else ""
        share = f"{worst.share:.2f}" if kind == "softmax" else f"{100 * worst.share:.0f} %"
        yield _finding(
            "warning",
            worst.place or "model",
            f"{share} {told}{more}",
            remedy,
            {"share": worst.share, "num_gates": len(found)},
        )


def _norms(signals: Signals) -> Iterator[Finding]:
    """An epsilon above the variance it is added to decides what comes out, and the signal does not."""
    small = [
        (call.reads.rms**2 / call.epsilon, call)
        for call in signals.calls
        if call.epsilon
        and call.reads is not None
        and math.isfinite(call.reads.rms)
        and call.reads.rms**2 < call.epsilon
    ]
    if small:
        share, call = min(small, key=lambda pair: pair[0])
        severity: Literal["note", "warning"] = "warning" if share < 0.1 else "note"
        assert call.reads is not None
        yield _finding(
            severity,
            call.place,
            f"what it normalizes has a mean square of {call.reads.rms**2:.2g}, its epsilon "
            f"is {call.epsilon:.2g}: what comes out has a size of {math.sqrt(share / (1 + share)):.2g}, not 1"
            + (f" (and {len(small) - 1} more norms)" if len(small) > 1 else ""),
            "a larger signal, or a smaller epsilon",
            {"mean_square": call.reads.rms**2, "epsilon": call.epsilon, "num_norms": len(small)},
        )


def _positions(signals: Signals, zeros: Collection[str]) -> Iterator[Finding]:
    for use in signals.uses:
        alone = (
            use.num_constant == use.fan_out and use.kind != "embedding" and use.fan_out > 1 and use.name not in zeros
        )
        if alone and use.reads is not None and use.reads.std > 0 and use.writes is not None and use.writes.rms > 0:
            yield _finding(
                "warning",
                use.name,
                "gives the same for every position of the batch, whatever is there",
                "see what it reads: rows of the batch, or what comes before, are alike",
                {},
            )
            return


def _finding(
    severity: Literal["error", "warning", "note"], place: str, message: str, remedy: str, evidence: object
) -> Finding:
    return Finding("init", severity, place, message, remedy, evidence if isinstance(evidence, dict) else {})
