"""What is seen of a step for the audit of copies: every operation with the storages that it reads, writes and makes."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from torchledger.auditor.copies_calling import Calling, calling
from torchledger.auditor.copies_kind import KINDS
from torchledger.auditor.subject import Subject, left_as_it_was
from torchledger.tracer import Call, Recorder, Trace, TraceError
from torchledger.tracer.layouts import results_of
from torchledger.tracer.observed import observed
from torchledger.tracer.plain_step import StepOptions
from torchledger.tracer.signature import TensorMeta, meta_of
from torchledger.tracer.step import trace_plain
from torchledger.tracer.storages import Entry


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that an operation takes.

    Attributes:
        entry: its storage; one object a storage, from its first sight to its death.
        version: how often the storage was written in place before.
        meta: its geometry and number format.
        is_written: whether the operation writes it.
    """

    entry: Entry
    version: int
    meta: TensorMeta
    is_written: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """One operation of the step, no view.

    Attributes:
        index: of its call in the trace.
        func: the operation.
        operands: the tensors among its arguments, in order.
        results: the tensors that it returned.
        calling: the call of Python it comes from; known of copies only. In the backward pass the function is the name
            of autograd's node.
        call: module, phase, source line.
    """

    index: int
    func: Any
    operands: tuple[Operand, ...]
    results: tuple[TensorMeta, ...]
    calling: Calling
    call: Call

    @property
    def op(self) -> str:
        """Name of the operation without its overload."""
        name: str = self.func._schema.name  # noqa: SLF001  # torch's only way to a schema
        return name.rpartition("::")[2]


@dataclass(frozen=True, slots=True)
class SeenStep:
    """A step as it was seen.

    Attributes:
        operations: in order.
        made: storages by the call that made them.
        views: how often each operation that returns a view ran.
        trace: the step's ledger.
        assumptions: how it was looked at.
    """

    operations: tuple[Seen, ...]
    made: dict[int, tuple[Entry, ...]]
    views: dict[str, int]
    trace: Trace
    assumptions: tuple[str, ...]


def seen_step(subject: Subject) -> SeenStep:
    """The subject's second training step, on fake tensors; on its real ones where it needs their values.

    Raises:
        TraceError: the step cannot be looked at.
    """
    if subject.precision == "fp16":  # the trace refuses it on a CPU, whose autocast has it
        return _on_real(subject, "fp16 was run on real tensors, without a loss scale")
    options = StepOptions(subject.loss, subject.optimizer, subject.precision, subject.gradient_clip, fold=False)
    watch = _Watch()
    try:
        trace = trace_plain(subject.model, subject.batch, options, around=watch.on)
    except TraceError as refused:
        with contextlib.suppress(Exception):
            return _on_real(subject, f"run on real tensors, because a trace without data was refused: {refused}")
        raise
    return watch.step(trace, ())


def _on_real(subject: Subject, why: str) -> SeenStep:
    watch = _Watch()
    recorder = Recorder()
    with left_as_it_was(subject), recorder, watch.on(recorder):
        recorder.register(subject.model)
        for number in (1, 2):
            recorder.mark(f"step {number}")
            subject.forward().backward()  # type: ignore[no-untyped-call]  # torch's method has no types
            if subject.gradient_clip > 0:
                torch.nn.utils.clip_grad_norm_(subject.model.parameters(), subject.gradient_clip)
            if subject.optimizer is not None:
                subject.optimizer.step()
            subject.model.zero_grad(set_to_none=True)
    return watch.step(recorder.trace(since="step 2"), (why,))


class _Watch:
    """Looks along with a recorder."""

    def __init__(self) -> None:
        self._recorder = Recorder()
        self._begun: list[Seen] = []
        self._views: Counter[tuple[int, str]] = Counter()

    @contextlib.contextmanager
    def on(self, recorder: Recorder) -> Iterator[None]:
        """While this is on, everything that the recorder runs is seen."""
        self._recorder, self._begun = recorder, []
        self._views.clear()
        with observed(recorder, self._look):
            yield

    def step(self, trace: Trace, assumptions: tuple[str, ...]) -> SeenStep:
        """What was seen of the step that the trace is of."""
        operations = tuple(
            _placed(each, trace.calls[each.index])
            for each in self._begun
            if trace.first_call <= each.index < len(trace.calls)
        )
        made: dict[int, list[Entry]] = {}
        for entry in self._recorder.storages.entries:
            if entry.call >= trace.first_call:
                made.setdefault(entry.call, []).append(entry)
        views = Counter[str]()
        for (before, name), times in self._views.items():
            if before >= trace.first_call:
                views[name] += times
        by_call = {call: tuple(entries) for call, entries in made.items()}
        return SeenStep(operations, by_call, dict(views.most_common()), trace, (*assumptions, *trace.assumptions))

    def _look(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[torch.Tensor], result: Any
    ) -> None:
        recorder = self._recorder
        index = len(recorder.calls)
        if getattr(func, "is_view", False):
            self._views[index, func._schema.name.rpartition("::")[2]] += 1  # noqa: SLF001  # torch's only way to a schema
            return
        written = _written(func, args, kwargs)
        operands = []
        for tensor in tensors:
            entry = recorder.storages.entry(tensor.untyped_storage()._cdata)  # noqa: SLF001  # the storage's address
            if entry is not None:
                operands.append(Operand(entry, _version(tensor), meta_of(tensor), id(tensor) in written))
        results = tuple(meta_of(tensor) for tensor in results_of(result) if tensor.layout is torch.strided)
        self._begun.append(Seen(index, func, tuple(operands), results, self._calling(func), _NOWHERE))

    @staticmethod
    def _calling(func: Any) -> Calling:
        if func._schema.name.rpartition("::")[2] not in KINDS:  # noqa: SLF001  # torch's only way to a schema
            return Calling()
        node: Any = torch._C._current_autograd_node()  # noqa: SLF001  # autograd has no public door to the running node
        if node is not None:
            return Calling(node.name())
        return calling(sys._getframe(1))  # noqa: SLF001  # the only cheap way to a frame


def _placed(seen: Seen, call: Call) -> Seen:
    """With its call; the update is run by the audit, which is no line of the user's."""
    if call.phase == "optimizer":
        return replace(seen, call=replace(call, source=""), calling=Calling(seen.calling.function))
    return replace(seen, call=call)


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> frozenset[int]:
    """Identities of the tensors that an operation writes."""
    schema = func._schema  # noqa: SLF001  # torch's only way to a schema
    if not schema.is_mutable:
        return frozenset()
    found: set[int] = set()
    for position, argument in enumerate(schema.arguments):
        if argument.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            found.update(id(item) for item in (value if isinstance(value, (list, tuple)) else (value,)))
    return frozenset(found)


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else int(tensor._version)  # noqa: SLF001  # torch's only way to it


_NOWHERE = Call(None, "", "forward", "none", "", "")  # type: ignore[arg-type]  # replaced when the step is over
