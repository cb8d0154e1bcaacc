"""The init audit: whether weights begin so that signals and gradients keep their size by depth.

One step is run and looked at, on the batch as it is. What a matrix was drawn by is a test and not a guess: its standard
deviation is known to a sampling error, and a scheme holds where it lies within that. Growth is measured.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import torch
from torch import nn

from torchledger.auditor.init_depth import Stack, growth, rate, stacks
from torchledger.auditor.init_judged_signals import judged_loss, judged_signals
from torchledger.auditor.init_judged_weights import judged_weights
from torchledger.auditor.init_matrices import Matrix, matrices
from torchledger.auditor.init_redrawn import redraw
from torchledger.auditor.init_signals import Signals, look
from torchledger.auditor.subject import Subject, left_as_it_was
from torchledger.ledger import AuditRecord, Finding

__all__ = ["audit_init"]

Initialiser: TypeAlias = Callable[[nn.Module], None]

_SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class _Audited:
    """What one state of the weights gave."""

    signals: Signals
    stacks: tuple[Stack, ...]
    matrices: tuple[Matrix, ...]
    findings: tuple[Finding, ...]
    logit_std: float | None


def audit_init(
    subject: Subject,
    *,
    attempt: str | Initialiser | None = None,
    attempt_name: str = "",
    seed: int = 0,
    tell: Callable[[int, int, str], None] = lambda _done, _total, _what: None,
) -> AuditRecord:
    """Look at what a model begins with, and at one step of it.

    Tables: `levels` (stack, depth, place, mean, std, rms, gradient_rms, growth, gradient_growth; the first of a stack
    is what it reads), `matrices` (place, role, shape, use, fan_in, fan_out, mean, std, std_error, scheme, expected_std,
    errors, gain, measured_gain, and what xavier, fan_in and kaiming would have; rows that are zero, constant, copies),
    `gates` (place, kind, share, count); with an attempt also `levels_after`, `matrices_after` and `findings_after`.

    Args:
        subject: what is audited; it is left as it was.
        attempt: other initial values that are looked at as well: a scheme by name (`init_redrawn.SCHEMES`), or a
            function that gives a module values in place.
        attempt_name: what the attempt is called, where it is a function.
        seed: of an attempt by name.
        tell: called with pieces of work done, all of them, and what is being done.

    Raises:
        AuditError: the subject gives no loss, or there is no such scheme.
    """
    pieces = 3 if attempt is None else 4
    with left_as_it_was(subject):
        tell(0, pieces, "looking at a step")
        begin = time.perf_counter()
        signals = look(subject)
        audited_s = time.perf_counter() - begin
        tell(1, pieces, "looking at weights")
        before = _audited(subject, signals, is_tried=False)
        weights_s = time.perf_counter() - begin - audited_s
        after = None
        if attempt is not None:
            tell(2, pieces, "looking at the attempt")
            if isinstance(attempt, str):
                redraw(subject.model, signals, attempt, vocab_size=subject.vocab_size, seed=seed)
            else:
                with torch.no_grad():
                    attempt(subject.model)
            after = _audited(subject, look(subject), is_tried=True)
    tell(pieces - 1, pieces, "running a step unseen")
    name = attempt if isinstance(attempt, str) else attempt_name
    tried = {} if after is None else {"tried": {"scheme": name, **_changing(_facts(subject, after))}}
    return AuditRecord(
        audit="init",
        subject=subject.name,
        findings=before.findings,
        facts={**_facts(subject, before), **tried},
        tables={**_tables(before), **({} if after is None else _tables(after, "_after"))},
        overhead={"plain_step_s": _plain_step(subject), "audited_step_s": audited_s, "weights_s": weights_s,
                  "extra_bytes": float(_held_bytes(subject))},
        assumptions=tuple(_assumptions(subject, name)),
    )  # fmt: skip


def _audited(subject: Subject, signals: Signals, *, is_tried: bool) -> _Audited:
    model = subject.model
    found = stacks(signals, sum(p.numel() for p in model.parameters()))
    promised = None if is_tried else subject.initial_stds
    held = tuple(matrices(model, signals, promised, subject.initialization or "its recipe", _declared(model)))
    heads = [
        use.writes.std
        for use in signals.uses
        if use.kind == "matmul" and use.fan_out == subject.vocab_size and use.writes is not None
    ]
    is_trained = is_tried is False and _is_trained(subject)
    zeros = {each.name for each in held if each.values.is_zero}
    findings = [*judged_signals(signals, found, zeros), *judged_weights(held, signals, is_trained=is_trained)]
    if subject.vocab_size is not None and not is_trained:
        findings += judged_loss(signals.loss, subject.vocab_size, heads[-1] if heads else None)
    findings.sort(key=lambda each: _SEVERITIES.index(each.severity))
    signals.gradient_of = {}  # nothing more is asked of them
    return _Audited(signals, found, held, tuple(findings), heads[-1] if heads else None)


def _is_trained(subject: Subject) -> bool:
    """Whether an optimizer has been at the weights."""
    return subject.optimizer is not None and bool(subject.optimizer.state)


def _declared(model: nn.Module) -> float | None:
    """The standard deviation that a transformers configuration names."""
    config = getattr(model, "config", None)
    text = getattr(config, "get_text_config", None)
    found = getattr(text() if callable(text) else config, "initializer_range", None)
    return float(found) if isinstance(found, (int, float)) and found > 0 else None


def _plain_step(subject: Subject) -> float:
    """Seconds of a forward and backward pass that nobody looks at."""
    with left_as_it_was(subject):
        for parameter in subject.model.parameters():
            parameter.grad = None
        begin = time.perf_counter()
        loss = subject.forward()
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]  # torch's function has no types
        return time.perf_counter() - begin


def _held_bytes(subject: Subject) -> int:
    """What is copied so that it can be put back: weights, buffers, gradients, optimizer state."""
    model, state = subject.model, getattr(subject.optimizer, "state", {})
    tensors = {id(t): t for t in (*model.parameters(), *model.buffers())}
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    kept = [t for s in state.values() if isinstance(s, dict) for t in s.values() if hasattr(t, "nbytes")]
    return sum(t.nbytes for t in (*tensors.values(), *grads, *kept))


def _facts(subject: Subject, audited: _Audited) -> dict[str, Any]:
    facts: dict[str, Any] = {"loss": audited.signals.loss}
    if subject.vocab_size is not None:
        facts["ln_vocab"] = math.log(subject.vocab_size)
        if audited.logit_std is not None:
            facts["logit_std"] = audited.logit_std
            facts["expected_loss"] = facts["ln_vocab"] + audited.logit_std**2 / 2
    facts["growth"] = {
        stack.name or stack.kind: {
            "num_layers": stack.num_layers,
            "signal": stack.forward,
            "signal_a_layer": rate(stack.forward_steps),
            "gradient": stack.backward,
            "gradient_a_layer": rate(stack.backward_steps),
        }
        for stack in audited.stacks
    }
    facts["num_matrices"] = len(audited.matrices)
    facts["num_of_a_scheme"] = sum(each.scheme is not None for each in audited.matrices)
    facts["num_copies"] = sum(each.values.rows.copies for each in audited.matrices if each.multiplies)
    return facts


def _changing(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Without what other weights do not change."""
    return {key: value for key, value in facts.items() if key not in {"ln_vocab", "num_matrices"}}


def _tables(audited: _Audited, suffix: str = "") -> dict[str, tuple[Mapping[str, Any], ...]]:
    tables: dict[str, tuple[Mapping[str, Any], ...]] = {
        f"levels{suffix}": tuple(row for stack in audited.stacks for row in _levels(stack)),
        f"matrices{suffix}": tuple(_matrix(each) for each in audited.matrices),
        f"gates{suffix}": tuple(asdict(gate) for gate in audited.signals.gates),
    }
    if suffix:
        tables["findings_after"] = tuple(asdict(each) for each in audited.findings)
    return tables


def _levels(stack: Stack) -> Iterator[dict[str, Any]]:
    for depth, level in enumerate(stack.levels):
        forward, backward = growth(stack.levels, depth)
        yield {
            "stack": stack.name or stack.kind,
            "depth": depth,
            "place": level.place,
            "mean": level.signal.mean,
            "std": level.signal.std,
            "rms": level.signal.rms,
            "gradient_rms": None if level.gradient is None else level.gradient.rms,
            "growth": forward,
            "gradient_growth": backward if depth > 1 else None,
        }


def _matrix(each: Matrix) -> dict[str, Any]:
    sample, use = each.values.sample, each.use
    held: Sequence[Any] = [each.promised] if each.promised is not None else each.found[:1]
    named = {m.scheme.name: m.std for m in each.found if m.scheme.name in {"fan_in", "xavier", "kaiming"}}
    return {
        "place": each.name,
        "role": each.role,
        "shape": list(each.shape),
        "use": None if use is None else use.kind,
        "is_residual": use is not None and use.is_residual,
        "fan_in": None if use is None else use.fan_in,
        "fan_out": None if use is None else use.fan_out,
        "mean": sample.mean,
        "std": sample.std,
        "std_error": sample.error * sample.std,
        "scheme": each.scheme,
        "nearest": held[0].scheme.name if held else None,
        "expected_std": held[0].std if held else None,
        "errors": held[0].errors if held else None,
        "fan_in_std": named.get("fan_in"),
        "xavier_std": named.get("xavier"),
        "kaiming_std": named.get("kaiming"),
        "gain": each.gain,
        "measured_gain": each.measured_gain,
        "gradient_rms": each.gradient_rms,
        "zero_rows": each.values.rows.zeros,
        "constant_rows": each.values.rows.constants,
        "copied_rows": each.values.rows.copies,
        "copied_columns": each.values.columns.copies,
    }


def _assumptions(subject: Subject, attempt: str) -> Iterator[str]:
    if _is_trained(subject):
        yield "an optimizer has been at the weights: their spreads and the loss are told, not judged"
    if subject.precision != "fp32":
        yield f"the forward pass is autocast to {subject.precision}, and signals are as it makes them"
    if any(p.numel() > 2**22 for p in subject.model.parameters()):
        yield "moments of a matrix with more than 4,194,304 values are of about so many of them, spread over it"
    if attempt:
        yield f"{attempt} was tried on the same batch and put back"
