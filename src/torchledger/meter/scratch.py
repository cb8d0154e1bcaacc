"""What a kernel holds inside: every distinct operation call of a trace, replayed on real tensors under the profiler.

Tensor bytes are the same on every machine. What a kernel takes besides (oneDNN's reordered weights, the CPU flash
kernel's accumulators) depends on processor, threads and library, so it is probed where it will run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.profiler import record_function

from torchledger.memory import Timeline
from torchledger.meter.allocator import allocation_events, profiling, walk
from torchledger.tracer import Signature, Trace, real_arguments

_MARK = "torchledger scratch probe "
_RNN = "aten.mkldnn_rnn_layer.default"
_RNN_BACKWARD = "aten.mkldnn_rnn_layer_backward.default"


@dataclass(frozen=True, slots=True)
class Scratch:
    """What the kernels of a trace were seen to hold.

    Attributes:
        internal_bytes: for every signature, most bytes alive between entry and return, its outputs included.
        output_bytes: for every signature, bytes that are still alive on return.
        skipped: operations that could not be replayed, with the reason.
    """

    internal_bytes: Mapping[Signature, int] = field(default_factory=dict)
    output_bytes: Mapping[Signature, int] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)

    def by_call(self, trace: Trace) -> dict[int, int]:
        """For every call of a trace, by its index, the bytes its kernel holds: what `Timeline.peak` takes."""
        known = self.internal_bytes
        return {index: known[call.signature] for index, call in enumerate(trace.calls) if call.signature in known}

    def timeline(self, trace: Trace) -> Timeline:
        """The trace's timeline with the workspaces that oneDNN's recurrent layers were seen to leave.

        How large they are the library alone knows, so a trace has them with no bytes.
        """
        made: dict[int, int] = {}
        for block in trace.timeline.blocks:
            made[block.call] = made.get(block.call, 0) + block.num_bytes
        blocks = tuple(
            replace(block, num_bytes=self.output_bytes[signature] - made[block.call])
            if block.op == _RNN
            and block.num_bytes == 0
            and (signature := trace.calls[block.call].signature) in self.output_bytes
            else block
            for block in trace.timeline.blocks
        )
        return replace(trace.timeline, blocks=blocks)

    def beyond_outputs(self) -> dict[str, int]:
        """For every operation that holds more than its outputs, the most it was seen to hold beyond them."""
        held: dict[str, int] = {}
        for signature, internal in self.internal_bytes.items():
            beyond = internal - self.output_bytes[signature]
            if beyond > 0:
                held[signature.op] = max(held.get(signature.op, 0), beyond)
        return dict(sorted(held.items(), key=lambda item: -item[1]))


def probe(signatures: Iterable[Signature], *, on_progress: Callable[[int, int, str], None] | None = None) -> Scratch:
    """Replay every distinct signature once on zeros and read what the allocator did inside it.

    Args:
        signatures: calls of a trace; equal ones are run once.
        on_progress: told (done, total, operation) before each.
    """
    distinct = list(dict.fromkeys(signatures))
    skipped: dict[str, str] = {}
    with torch.random.fork_rng(devices=[]), profiling() as session, torch.no_grad():
        for number, signature in enumerate(distinct):
            if on_progress is not None:
                on_progress(number, len(distinct), signature.op)
            try:
                _replay(number, signature)
            except (RuntimeError, AttributeError, TypeError, ValueError, IndexError) as error:
                skipped[signature.op] = str(error).partition("\n")[0]
    inside = _inside(session)
    internal = {distinct[number]: peak for number, (peak, _) in inside.items() if distinct[number].op not in skipped}
    output = {distinct[number]: end for number, (_, end) in inside.items() if distinct[number].op not in skipped}
    return Scratch(internal, output, skipped)


def _replay(number: int, signature: Signature) -> None:
    args, kwargs = real_arguments(signature)
    if signature.op == _RNN_BACKWARD:
        args = (*args[:-1], _workspace(signature, args))
    operation = signature.overload()
    with torch.set_grad_enabled(signature.op == _RNN), record_function(f"{_MARK}{number}"):
        result = operation(*args, **kwargs)
    del result


def _workspace(signature: Signature, args: tuple[Any, ...]) -> torch.Tensor:
    """What oneDNN's forward pass of a recurrent layer leaves to its backward pass, which crashes without it."""
    told = dict(zip((argument.name for argument in signature.overload()._schema.arguments), args, strict=True))  # noqa: SLF001  # torch's only way to a schema
    names = (
        "reverse", "batch_sizes", "mode", "hidden_size", "num_layers", "has_biases", "bidirectional", "batch_first",
    )  # fmt: skip
    with torch.enable_grad():  # without, it leaves nothing
        workspace: torch.Tensor = torch.ops.aten.mkldnn_rnn_layer(*args[:7], *(told[name] for name in names), True)[-1]
    return workspace


def _inside(session: Any) -> dict[int, tuple[int, int]]:
    """Peak and end bytes of each replay, from the allocation events between its begin and its end."""
    spans = sorted(
        (event.start_time_ns, event.end_time_ns, int(event.name.removeprefix(_MARK)))
        for event in walk(session)
        if event.name.startswith(_MARK)
    )
    events = iter(allocation_events(session))
    found: dict[int, tuple[int, int]] = {}
    time_ns, _, size = next(events, (None, 0, 0))
    for start, end, number in spans:
        live = peak = 0
        while time_ns is not None and time_ns <= end:
            if time_ns >= start:
                live += size
                peak = max(peak, live)
            time_ns, _, size = next(events, (None, 0, 0))
        found[number] = (peak, live)
    return found
