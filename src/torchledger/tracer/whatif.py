"""What if: the same model traced again under another recipe, and all of them side by side."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import nn

from torchledger.ledger import Amount
from torchledger.tracer.checkpointing import CheckpointPolicy, checkpointed
from torchledger.tracer.errors import TraceError
from torchledger.tracer.offloading import offloaded_state, saving_on_host
from torchledger.tracer.plain_step import StepOptions, tensors_of
from torchledger.tracer.resized import resized
from torchledger.tracer.result import Trace
from torchledger.tracer.step import trace_plain

#: Optimizers by name, each made with torch's defaults. `foreach`, `fused` and `loop` stand after a colon.
OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "sgd": lambda parameters, **options: torch.optim.SGD(parameters, lr=1e-3, **options),
    "momentum": lambda parameters, **options: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, **options),
    "adafactor": torch.optim.Adafactor,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
}
_IMPLEMENTATIONS: Mapping[str, dict[str, bool]] = {
    "": {},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "loop": {"foreach": False},
}


@dataclass(frozen=True, slots=True)
class Change:
    """What is different from the plain step; `None` is as it was.

    Attributes:
        checkpoint: activation checkpointing of the model's repeated blocks (`CheckpointPolicy`).
        reentrant: the older way of checkpointing.
        micro_batch: size of the batch along dimension 0.
        sequence_length: tokens in a sequence.
        precision: `fp32`, `bf16`, `fp16`.
        optimizer: one of `OPTIMIZERS`, with `:foreach`, `:fused` or `:loop` where wanted (`adamw:fused`).
        set_to_none: whether gradients are freed after the step.
        accumulation_steps: micro-batches in a step.
        offload: `optimizer` state or saved `activations` in the host's memory (target cuda).
    """

    checkpoint: CheckpointPolicy = "none"
    reentrant: bool = False
    micro_batch: int | None = None
    sequence_length: int | None = None
    precision: Literal["fp32", "bf16", "fp16"] | None = None
    optimizer: str | None = None
    set_to_none: bool | None = None
    accumulation_steps: int | None = None
    offload: Literal["optimizer", "activations"] | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Change:
        """A change from names and values.

        Raises:
            TraceError: a name that is none.
        """
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                raise TraceError(f"there is no what-if {name!r}", remedy=f"There are {', '.join(known)}")
        return cls(**values)

    def check(self) -> None:
        """Refuse values that no step has.

        Raises:
            TraceError: says which and what it may be.
        """
        for name in ("micro_batch", "sequence_length", "accumulation_steps"):
            value: object = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise TraceError(f"{name} is {value!r}", remedy="It is 1, 2 ...")
        for name in ("set_to_none", "reentrant"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, bool):
                raise TraceError(f"{name} is {value!r}", remedy="It is true or false")
        if self.offload not in {None, "optimizer", "activations"}:
            raise TraceError(f"offload is {self.offload!r}", remedy="It is optimizer or activations")

    @property
    def text(self) -> str:
        """The change in words: `checkpoint full, micro_batch 2`."""
        told = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return (
            ", ".join(
                f"{name} {' '.join(value) if isinstance(value, tuple) else value}"
                for (name, value), field in zip(told, fields(self), strict=True)
                if value != field.default
            )
            or "as it is"
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step takes under one change.

    Attributes:
        name: of the change.
        peak_bytes: the most bytes of tensors that are live at once.
        reserved_bytes: what the caching allocator takes from the device for them; `None` for the CPU.
        kept_bytes: bytes that the forward pass keeps for the backward pass.
        host_bytes: the most bytes that stand in the host's memory beside.
        model_flops, executed_flops: contractions without and with what is computed again.
        parts_bytes: bytes by part at the peak.
        assumptions: what was assumed.
    """

    name: str
    peak_bytes: int
    reserved_bytes: int | None
    kept_bytes: int
    host_bytes: int
    model_flops: Amount
    executed_flops: Amount
    parts_bytes: Mapping[str, int]
    assumptions: tuple[str, ...]

    @property
    def need_bytes(self) -> int:
        """What has to fit: reserved bytes on a GPU, those of the tensors on a CPU."""
        return self.peak_bytes if self.reserved_bytes is None else self.reserved_bytes

    @classmethod
    def of(cls, name: str, trace: Trace) -> Outcome:
        """What a trace says."""
        peak = trace.peak()
        reserved = trace.reserve().peak.reserved_bytes if trace.target == "cuda" else None
        return cls(
            name=name,
            peak_bytes=peak.peak_bytes,
            reserved_bytes=reserved,
            kept_bytes=trace.kept_bytes,
            host_bytes=_most_on_host(trace),
            model_flops=trace.model_flops,
            executed_flops=trace.executed_flops,
            parts_bytes=peak.by_part(),
            assumptions=trace.assumptions,
        )


def what_if(
    model: nn.Module,
    batch: Any,
    changes: Iterable[Change | Mapping[str, Any]] | Mapping[str, Change | Mapping[str, Any]],
    **options: Any,
) -> tuple[Outcome, ...]:
    """Trace a step as it is and under each change, and put the outcomes side by side.

    Args:
        model: as `trace` takes it; it is left as it was.
        batch: as `trace` takes it.
        changes: each a `Change` or its fields by name (`{"checkpoint": "full"}`); with names or without.
        options: those of `trace`: loss, optimizer, precision, target ...

    Returns:
        One outcome a change; the first is the step as it is.

    Raises:
        TraceError: the step cannot be traced, or a change is impossible (offloading from a CPU, a model without
            repeated blocks to checkpoint).
    """
    plain = StepOptions(**options)
    named = changes.items() if isinstance(changes, Mapping) else [("", change) for change in changes]
    found = [("as it is", Change())]
    for name, change in named:
        made = change if isinstance(change, Change) else Change.of(change)
        found.append((name or made.text, made))
    return tuple(Outcome.of(name, traced_with(model, batch, change, plain)) for name, change in found)


def traced_with(model: nn.Module, batch: Any, change: Change, options: StepOptions) -> Trace:
    """The trace of a step under a change."""
    change.check()
    if change.offload is not None and options.target_name == "cpu":
        raise TraceError("a CPU has no other memory to offload to", remedy="Take target='cuda'")
    changed = {
        name: value
        for name in ("precision", "set_to_none", "accumulation_steps")
        if (value := getattr(change, name)) is not None
    }
    if change.optimizer is not None:
        changed["optimizer"] = optimizer_named(change.optimizer)
    if change.micro_batch is not None or change.sequence_length is not None:
        batch = resized(batch, batch_size=change.micro_batch, sequence_length=change.sequence_length)
    trace = trace_plain(
        model,
        batch,
        replace(options, **changed),
        change=lambda copied: checkpointed(copied, change.checkpoint, reentrant=change.reentrant),
        around=saving_on_host if change.offload == "activations" else lambda _: contextlib.nullcontext(),
    )
    return offloaded_state(trace) if change.offload == "optimizer" else trace


def optimizer_named(name: str) -> Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]:
    """A function of parameters that makes the optimizer of that name.

    Raises:
        TraceError: there is none; the message lists them.
    """
    kind, _, implementation = name.partition(":")
    if kind not in OPTIMIZERS or implementation not in _IMPLEMENTATIONS:
        raise TraceError(
            f"there is no optimizer {name!r}",
            remedy=f"There are {', '.join(OPTIMIZERS)}, each with :foreach, :fused or :loop where torch has it",
        )
    return lambda parameters: OPTIMIZERS[kind](parameters, **_IMPLEMENTATIONS[implementation])


def num_rows(batch: Any) -> int:
    """Size of dimension 0 of the batch's first tensor."""
    return next((int(tensor.shape[0]) for tensor in tensors_of(batch) if tensor.dim()), 1)


def _most_on_host(trace: Trace) -> int:
    here = replace(
        trace.timeline,
        blocks=tuple(replace(block, on_host=not block.on_host) for block in trace.timeline.blocks),
    )
    return here.peak().peak_bytes
