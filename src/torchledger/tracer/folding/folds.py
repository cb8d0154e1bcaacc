"""`Folds`: lets equal layers run once, and tells the recording afterwards what the others would have done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from torchledger.tracer.folding.equal import Plan, Run, runs_of
from torchledger.tracer.folding.layer import LeftOut, Unfoldable, is_watched, restore, watch
from torchledger.tracer.folding.segments import OUTSIDE, Label, Segments
from torchledger.tracer.folding.unfold import Filled, unfolded
from torchledger.tracer.memo import Made, Memo, Result
from torchledger.tracer.storages import Entry
from torchledger.tracer.threads import is_elsewhere

if TYPE_CHECKING:
    from torchledger.tracer.recorder import Recorder

__all__ = ["Folds", "Unfoldable", "folded"]

_T = TypeVar("_T")
#: How often another plan is tried where one does not do.
_TRIES = 5


class Folds:
    """The runs of one recording.

    Args:
        plans: for the path of a list of modules how it is folded; `None` leaves it alone.

    Attributes:
        runs: what is folded.
        segments: stretches of the recording.
    """

    def __init__(self, plans: Mapping[str, Plan | None] | None = None) -> None:
        self.runs: list[Run] = []
        self.segments = Segments()
        self.plans = dict(plans or {})
        self._recorder: Recorder | None = None
        self._memo: Memo | None = None
        self._inside = OUTSIDE
        self._instances: list[int] = []
        self._limit = 0
        self._ended: tuple[Label, int] | None = None
        self._filled: list[Filled] = []
        self._stand_ins: dict[int, Entry] = {}
        self._failed: Unfoldable | None = None
        self._watched: list[nn.Module] = []

    @property
    def recorder(self) -> Recorder:
        """The recorder that these work for."""
        assert self._recorder is not None
        return self._recorder

    @contextlib.contextmanager
    def running(self, recorder: Recorder, memo: Memo | None) -> Iterator[None]:
        """While a recorder records."""
        assert memo is not None, "only fake tensors can be left out"
        self._recorder, self._memo = recorder, memo
        autograd: Any = torch.autograd
        original = autograd._engine_run_backward  # noqa: SLF001  # where every backward pass begins and ends
        thread = get_ident()

        def run_backward(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if is_elsewhere(thread):
                return result
            if torch._C._current_graph_task_id() == -1:  # noqa: SLF001  # whether autograd's engine runs; no public door
                self.segments.open(OUTSIDE, recorder.storages.num_events, len(recorder.calls))
                self._fill_gradients()
            return result

        autograd._engine_run_backward = run_backward  # noqa: SLF001  # as above
        try:
            yield
        finally:
            autograd._engine_run_backward = original  # noqa: SLF001  # as above
            restore(self._watched)

    def root(self, root: nn.Module, prefix: str = "") -> None:
        """A model is about to run: find its runs, and see to it that they run folded."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return
        for run in runs_of(root, self.plans, prefix):
            if is_watched(run):
                continue
            number = len(self.runs)
            self.runs.append(run)
            self._instances.append(-1)
            self._watched.extend(run.layers)
            watch(run, LeftOut(run, self, number))

    # ------------------------------------------------------------------------------------------------ while it is run

    def begins(self, number: int) -> None:
        """The first unit of a run begins."""
        self._instances[number] += 1
        self._go(Label("forward", number, self._instances[number], 0))
        self.settle()

    def left(self, number: int, unit: int) -> None:
        """A unit of a run has ended."""
        run, following = self.runs[number], unit + 1
        if following == run.num_units:
            self._go(OUTSIDE)
        elif run.is_run(following):
            self._go(Label("forward", number, self._instances[number], following))
        else:
            self._go(Label("left out", number, self._instances[number]))

    def fail(self, run: int, reason: str, plan: Plan | None = None) -> Unfoldable:
        """The exception that says why a run cannot be folded; it may by another plan."""
        self._failed = Unfoldable(self.runs[run].path, reason, plan)
        return self._failed

    def settle(self) -> None:
        """Something runs: a unit that has ended ends here, or where the first storage was made since.

        What a caller lets go of as soon as it is called back (`h = layer(h)`) is freed in the unit, not in the next.
        """
        if self._ended is None:
            return
        (label, num_entries), self._ended = self._ended, None
        storages = self.recorder.storages
        made = len(storages.entries) > num_entries
        position = storages.entries[num_entries].allocated if made else storages.num_events
        self.segments.open(label, position, len(self.recorder.calls))

    def saw(self, node: Any, phase: str, addresses: list[int], *, is_backward: bool) -> None:
        """An operation is about to run, in a backward node or none, on storages at these addresses."""
        if not self.runs:
            return
        self.settle()
        label = self._inside
        if is_backward:
            label = self.segments.label if self.segments.label.kind != "forward" else OUTSIDE
            number = -1 if node is None else node._sequence_nr()  # noqa: SLF001  # autograd's numbering has no public door
            if 0 <= number < self._limit:
                label = self.segments.of_node(number)
        else:
            self._limit = torch.autograd._get_sequence_nr()  # type: ignore[attr-defined]  # noqa: SLF001  # as above
            if phase == "forward":
                self._check_operands(label, addresses)
        if label is not self.segments.label:
            self.segments.open(label, self.recorder.storages.num_events, len(self.recorder.calls))

    def _go(self, label: Label) -> None:
        self.settle()
        self._inside = label
        self._limit = torch.autograd._get_sequence_nr()  # type: ignore[attr-defined]  # noqa: SLF001  # as above
        self.segments.nodes_from(self._limit, label)
        self._ended = (label, len(self.recorder.storages.entries))

    def _check_operands(self, label: Label, addresses: list[int]) -> None:
        """What a layer makes may be used by the layers of its run alone, but for what the last one makes."""
        if label.run >= 0 and len(self.runs) == 1 and not label.instance:
            return
        storages, segments = self.recorder.storages, self.segments
        for address in addresses:
            entry = storages.entry(address)
            if entry is None or entry.call < 0:
                continue
            made = segments.all[segments.at(entry.allocated)].label
            if made.run < 0 or made[1:3] == label[1:3] or made.kind == "backward":
                continue
            if made.unit < self.runs[made.run].num_units - 1:
                raise self.fail(made.run, "what a layer makes is used by others than the next")

    def _fill_gradients(self) -> None:
        """Give the parameters of layers that were left out the gradients that they would have by now."""
        for number, run in enumerate(self.runs):
            template = run.parameters(run.template)
            known = [self._gradient(number, parameter) for parameter in template]
            for unit in run.left_out:
                for entry, model, parameter in zip(known, template, run.parameters(unit), strict=True):
                    self._fill(entry, model, parameter, number, unit)

    def _gradient(self, run: int, parameter: nn.Parameter) -> Entry | None:
        """Storage of a parameter's gradient."""
        if parameter.grad is None:
            return None
        if parameter.grad.layout is not torch.strided:
            raise self.fail(run, "its gradients are not plain tensors")
        return self.recorder.storages.entry(parameter.grad.untyped_storage()._cdata)  # noqa: SLF001  # the storage's address

    def _fill(self, known: Entry | None, model: nn.Parameter, parameter: nn.Parameter, run: int, unit: int) -> None:
        held = self._gradient(run, parameter)
        if held is not None and known is not None and self._stand_ins.get(id(held)) is known:
            return  # filled after an earlier micro-batch
        if held is not None or parameter.grad is not None:
            raise self.fail(run, "its parameters have gradients from elsewhere")
        if known is None:
            return
        gradient = model.grad
        assert gradient is not None
        assert self._memo is not None
        made = Made(-1, tuple(gradient.shape), gradient.stride(), gradient.dtype, 0)
        parameter.grad = self._memo.make(Result((made,), None), [])
        stand_in = self.recorder.storages.allocate(parameter.grad, op="")
        self._stand_ins[id(stand_in)] = known
        self._filled.append(Filled(stand_in, known, run, unit))

    # -------------------------------------------------------------------------------------------------- when it was run

    def unfold(self) -> None:
        """Write down in the recording what the layers that were left out would have done.

        Raises:
            Unfoldable: the layers are not alike after all.
        """
        if self._failed is not None:
            raise self._failed
        self.settle()
        self.recorder.assumptions.extend(
            f"the {run.num_units * run.period} layers of `{run.path}` are equal but for their number: they run alike"
            for run, instance in zip(self.runs, self._instances, strict=True)
            if instance >= 0 and run.is_numbered
        )
        if any(instance >= 0 for instance in self._instances):
            self.recorder.adopt(unfolded(self.recorder.record, self.runs, self.segments, self._filled))
        self._instances = [-1] * len(self.runs)


def folded(run: Callable[[Folds | None, tuple[str, ...]], _T], *, fold: bool) -> _T:
    """Trace folded where that is possible, and in full where it is not.

    Args:
        run: traces with these folds, or in full; it is told why what was tried before could not be folded.
        fold: whether to fold at all.

    Returns:
        What `run` returns.
    """
    reasons: dict[str, str] = {}
    plans: dict[str, Plan | None] = {}
    for _ in range(_TRIES if fold else 0):
        folds = Folds(plans)
        try:
            return run(folds, tuple(reasons.values()))
        except Unfoldable as reason:
            plans[reason.path] = reason.plan
            if reason.plan is None:
                reasons[reason.path] = str(reason)
        except Exception as error:
            if not folds.runs:
                raise
            reasons[""] = f"traced in full: with layers left out it fails with {type(error).__name__}"
            break
    return run(None, tuple(reasons.values()))
