"""`Recorder`: looks at every operation of a step, on fake tensors or real ones, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim import optimizer as optimizer_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from torchledger.ledger import GradientOf
from torchledger.tracer.books import ledger_of
from torchledger.tracer.call import Call
from torchledger.tracer.distributed import collectives
from torchledger.tracer.distributed.watching import watching
from torchledger.tracer.execution import Execution
from torchledger.tracer.folding import Folds
from torchledger.tracer.graph import PRODUCTS, Graph, Place
from torchledger.tracer.higher_order import is_whole, run_plainly, run_whole
from torchledger.tracer.in_place import InPlace
from torchledger.tracer.layouts import results_of
from torchledger.tracer.memo import Memo
from torchledger.tracer.modules import ModuleStack
from torchledger.tracer.naming import Naming
from torchledger.tracer.needed import needed_gradients
from torchledger.tracer.phases import Phases
from torchledger.tracer.random_states import seen_rng_states
from torchledger.tracer.record import Record
from torchledger.tracer.resizing import seen_resizes
from torchledger.tracer.result import Trace
from torchledger.tracer.routing import Routing
from torchledger.tracer.scalars import SAVING, SavedScalars
from torchledger.tracer.signature import (
    Encoder,
    Signature,
    TensorMeta,
    decode,
    meta_of,
    name_of,
    with_wrapped_number,
)
from torchledger.tracer.source import current_source
from torchledger.tracer.storages import Storages
from torchledger.tracer.targets import CPU, AfterCall, Target
from torchledger.tracer.threads import here

_DEVICE = torch.ops.prim.device.default
_NO_OPERATIONS = frozenset({"profiler", "prim"})
_LIFT_FRESH = torch.ops.aten.lift_fresh.default
_DETACH = torch.ops.aten.detach.default
_PLAIN = frozenset({torch.Tensor, nn.Parameter, nn.Buffer, FakeTensor})


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's class has no types
    """Records the operations and allocations of the code that runs inside it.

    ::

        with Recorder() as recorder:
            loss = model(batch).sum()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        trace = recorder.trace()

    Phases are found by themselves (`Phases` says how); `phase` names one explicitly. Compiled modules run eagerly.

    Args:
        fake_mode: the fake tensor mode that is on beneath; results on it are made from memory where that is the same.
        target: the device that the step is looked at for.
        folds: what lets equal layers of models that run here run once; on a fake mode only.
        routing: tokens that each expert of a layer gets in loops over experts; nothing shares them out evenly.

    Attributes:
        assumptions: what was assumed on the way; whoever records may add to it.
        calls: operation calls so far.
    """

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing is compiled under this mode; the compiler's wrapper would only cost time at every operation.
        return False

    def __init__(
        self,
        *,
        fake_mode: FakeTensorMode | None = None,
        target: Target = CPU,
        folds: Folds | None = None,
        routing: Sequence[int] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.target = target
        self._memo = None if fake_mode is None else Memo(fake_mode)
        self.assumptions: list[str] = []
        self.storages = Storages()
        self.graph = Graph()
        self.naming = Naming(self.storages, self.graph)
        self.modules = ModuleStack(self._root)
        self.scalars = SavedScalars(self.storages, on_host=target.name != "cpu")
        self.phases = Phases(self.modules, backward_begins=self._backward_begins, backward_ends=self._backward_ends)
        self._run = Execution(self._memo, Routing(self.modules, fake_mode, routing, self.assumptions.append)).run
        self._in_place = InPlace()
        self._placed: list[str] = []
        self._folds = folds
        self._marks: dict[str, tuple[int, int]] = {}
        self.calls: list[Call] = []
        self._positions: list[int] = []
        self._signatures: dict[Any, Signature] = {}
        self._results: dict[Signature, tuple[TensorMeta, ...]] = {}
        self._encoder = Encoder()
        self._exits = contextlib.ExitStack()
        self._is_eager = False
        self._after_call: AfterCall | None = None

    # ------------------------------------------------------------------------------------------------ coming and going

    def __enter__(self) -> Self:
        try:
            return self._come()
        except BaseException:  # Ctrl-C in between: what was put in place is taken away
            self._exits.close()
            raise

    def _come(self) -> Self:
        self._exits.callback(self.modules.unwatch)
        self.modules.watch()
        self._exits.callback(optimizer_hooks.register_optimizer_step_pre_hook(here(self._before_optimizer)).remove)
        self._exits.callback(optimizer_hooks.register_optimizer_step_post_hook(here(self._after_optimizer)).remove)
        self._exits.enter_context(seen_rng_states(here(self._adopt_rng_state)))
        self._after_call = self._exits.enter_context(self.target.running(self.storages, self.assumptions.append))
        for context in (seen_resizes(here(self._resized)), watching(self), run_plainly(self)):
            self._exits.enter_context(context)
        if self._folds is not None:
            self._exits.enter_context(self._folds.running(self, self._memo))
        self._run_eagerly()
        return super().__enter__()  # type: ignore[no-untyped-call,no-any-return]

    def __exit__(self, *exception: object) -> None:
        try:
            super().__exit__(*exception)  # type: ignore[no-untyped-call]
        finally:
            self._exits.close()
            self.phases.end()
            self.storages.close()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Operations inside are of this phase, whatever they look like."""
        with self.phases.named(name):
            self.storages.phase = name
            yield
        self.storages.phase = self.phases.current

    @contextlib.contextmanager
    def placed(self, module: str) -> Iterator[None]:
        """Operations inside belong to the module of this path, whichever is running."""
        self._placed.append(module)
        try:
            yield
        finally:
            self._placed.pop()

    def mark(self, name: str) -> None:
        """Name this moment (`step 2`)."""
        self._run_eagerly()
        self._marks[name] = (self.storages.num_events, len(self.calls))

    def register(self, model: nn.Module, name: str = "") -> None:
        """Name a model's modules, parameters and buffers; what runs unregistered is named when it first runs.

        With a name (`generator`) their paths begin with it.
        """
        self.modules.register(model, name)

    def register_inputs(self, tensors: Iterable[torch.Tensor]) -> None:
        """Say that these tensors are the step's inputs."""
        for tensor in tensors:
            self.storages.name(tensor, "inputs")

    def trace(self, *, since: str = "") -> Trace:
        """What was recorded so far; the ledger is of the operations after the mark `since`."""
        if self._folds is not None:
            self._folds.unfold()
        _, first_call = self._marks.get(since, (0, 0))
        kept = self.storages.kept_by_call(first_call)
        calls = [
            (index, call) for index, call in enumerate(self.calls[first_call:], first_call) if call.phase != "build"
        ]
        assumptions = tuple(dict.fromkeys((*self.assumptions, *self.naming.assumptions)))
        marks = {name: events for name, (events, _) in self._marks.items()}
        return Trace(
            ledger=ledger_of(calls, self._results, kept, assumptions),
            timeline=self.storages.timeline(tuple(self._positions), marks),
            calls=tuple(self.calls),
            first_call=first_call,
            num_parameters=self.naming.num_parameters,
            assumptions=assumptions,
            target=self.target.name,
        )

    @property
    def record(self) -> Record:
        """Everything that was written so far."""
        return Record(
            self.calls, self._positions, self.storages.entries, self.storages.num_events,
            self.storages.starts_of_backward, self._marks,
        )  # fmt: skip

    def adopt(self, record: Record) -> None:
        """Take this for what was written."""
        self.calls, self._positions, self._marks = record.calls, record.positions, record.marks
        self.storages.adopt(record.entries, record.num_events, record.starts_of_backward)

    # ---------------------------------------------------------------------------------------------------- one operation

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is _DEVICE:  # a question that only fake tensors are asked
            return args[0].device
        if func.namespace in _NO_OPERATIONS:
            return func(*args, **kwargs)
        if self._after_call is not None and "device" in kwargs:
            kwargs = self.target.plain(kwargs)
        if not _PLAIN.issuperset(types) and _unwraps(types):
            return NotImplemented  # a wrapper runs first; the operations on what it wraps come here
        if is_whole(func) and (result := run_whole(self, func, args, kwargs)) is not NotImplemented:
            return result
        node: Any = torch._C._current_autograd_node()  # noqa: SLF001  # autograd has no public door to the running node
        if func is _DETACH:
            return self._detach(args[0], node)
        func = self._in_place(func, node, args)
        tensors: list[torch.Tensor] = []
        collective = func.namespace in collectives.NAMESPACES
        if collective:
            if func.name() in collectives.WAITS:
                return args[0] if self._memo is not None else func(*args, **kwargs)
            key = self._encoder.key(*collectives.plain(func, args, kwargs), tensors)
        else:
            key = self._encoder.key(args, kwargs, tensors)
        addresses = [tensor.untyped_storage()._cdata for tensor in tensors]  # noqa: SLF001  # the storage's address
        phase, place = self._now(node)
        if self._folds is not None:
            self._folds.saw(node, phase, addresses, is_backward=self.phases.is_backward)
        if func is not _LIFT_FRESH:  # whose operand is the result's own storage, or the constant that a fake stands for
            for tensor, address in zip(tensors, addresses, strict=True):
                if address not in self.storages:
                    self.storages.allocate(tensor, op="")
        if getattr(func, "is_view", False):  # no work, no memory; its place is remembered for what its gradient does
            return self._view(func, self._run(func, args, kwargs, key, tensors), place)
        gradient_of = self._gradient_of(func, phase, node, addresses)
        if phase == "backward":
            self.scalars.entered(node)
            if func in SAVING and not isinstance(args[1], torch.Tensor):
                key = with_wrapped_number(key)
        elif phase == "recompute":
            self.scalars.recomputed()
        index, begun = len(self.calls), self.storages.num_events
        result = self._run(func, args, kwargs, key, tensors)  # may raise what an optimizer's `.item()` is answered for
        self._positions.append(begun)
        results = results_of(result)
        self._allocate(results, addresses, func, place, index)
        if self._after_call is not None:
            self._after_call(func, index, addresses, results, in_engine=self.phases.is_backward)
        if collective or func.namespace == collectives.STAGING:
            self.storages.communicate((*tensors, *results))
        if func in SAVING and phase != "backward":
            self.scalars.saved(args, place, index)
        if phase == "backward" and self.naming.accumulates(node):
            self._accumulated(node, results, addresses)
        signature = self._signature(func, key, results, needed_gradients(func, node) if phase == "backward" else None)
        self.calls.append(Call(signature, place.module, phase, gradient_of, place.kind, place.source, place.visible))
        return result

    def _view(self, func: Any, result: Any, place: Place) -> Any:
        if func is _LIFT_FRESH:  # torch.tensor makes its tensor below every mode, and may keep it for nothing
            self._allocate([result], [], func, place, len(self.calls) - 1)
        return result

    def _accumulated(self, node: Any, results: list[torch.Tensor], operands: list[int]) -> None:
        fresh = [tensor for tensor in results if tensor.untyped_storage()._cdata not in operands]  # noqa: SLF001  # the storage's address
        self.naming.gradient(node, fresh)

    def _detach(self, tensor: torch.Tensor, node: Any) -> torch.Tensor:
        """An alias: no work, no storage. Fake tensors detach whenever autograd saves one, real ones do not."""
        memo = self._memo
        alias: torch.Tensor
        alias = memo.alias(tensor) if memo is not None and memo.knows([tensor]) else _DETACH(tensor)
        if self.naming.accumulates(node):
            self.naming.gradient(node, results_of(alias))
        return alias

    def _now(self, node: Any) -> tuple[str, Place]:
        """Phase and place of the operation that is about to run."""
        phase = self.storages.phase = self.phases.find(node)
        if self._placed:
            place = Place(self._placed[-1], source=current_source())
        elif not self.phases.is_backward or (phase == "recompute" and self.phases.runs_modules_again):
            place = Place(self.modules.path, self.modules.kind, current_source(), self.modules.visible)
        elif self.naming.accumulates(node):
            place = Place(self.naming.name_of(node).rpartition(".")[0])
        else:
            place = self.graph.place(node)
        # Without gradients as well: the forward of a user's own autograd function runs without, under its node.
        if phase != "backward" or torch.is_grad_enabled():
            self.graph.remember(place)
        return phase, place

    def _gradient_of(self, func: Any, phase: str, node: Any, operands: list[int]) -> GradientOf:
        if func not in PRODUCTS:
            return "none"
        operands = operands[PRODUCTS[func]]
        if phase != "backward" or torch.is_grad_enabled():
            self.graph.forward_product(operands)
        return self.graph.gradient_of(node, operands) if phase == "backward" else "none"

    def _backward_begins(self) -> None:
        """The gradient of the loss itself, made just before the engine starts, belongs to the backward pass."""
        last = self.calls[-1] if self.calls else None
        if last is not None and last.signature.op == "aten.ones_like.default" and last.phase == "forward":
            self.calls[-1] = replace(last, phase="backward")
            entry = self.storages.entries[-1]
            if entry.call == len(self.calls) - 1:
                entry.phase = "backward"
        self.storages.backward_starts()

    def _backward_ends(self) -> None:
        self.scalars.backward_ended()
        self.naming.gradients()

    def _resized(self, storage: torch.UntypedStorage) -> None:
        _, place = self._now(torch._C._current_autograd_node())  # noqa: SLF001  # no public door to the running node
        self.storages.resized(storage, module=place.module, source=place.source)

    def _allocate(self, results: list[torch.Tensor], operands: list[int], func: Any, place: Place, call: int) -> None:
        for tensor in results:
            address = tensor.untyped_storage()._cdata  # noqa: SLF001  # the storage's address
            if address in self.storages:
                continue
            entry = self.storages.allocate(
                tensor, op=name_of(func), module=place.module, source=place.source, call=call
            )
            if not operands and entry.phase == "forward" and not self.modules.depth:
                entry.part = "inputs"  # data that is made outside every module
            self.graph.follow(operands, address)

    def _signature(
        self, func: Any, key: Any, results: list[torch.Tensor], needed: tuple[bool, ...] | None
    ) -> Signature:
        signature = self._signatures.get((func, key, needed))
        if signature is None:
            signature = self._signatures[func, key, needed] = replace(decode(name_of(func), key), needed=needed)
            self._results[signature] = tuple(meta_of(tensor) for tensor in results)
        return signature

    # ---------------------------------------------------------------------------------------------------- what is told

    def _root(self, root: nn.Module, prefix: str) -> None:
        self.naming.root(root, prefix)
        if self._folds is not None:
            self._folds.root(root, prefix)

    def _before_optimizer(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        self.naming.optimized(optimizer)
        self.phases.in_optimizer = True

    def _after_optimizer(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        self.phases.in_optimizer = False
        self.naming.optimizer_state(optimizer)

    def _adopt_rng_state(self, state: torch.Tensor) -> None:
        _, place = self._now(torch._C._current_autograd_node())  # noqa: SLF001  # no public door to the running node
        entry = self.storages.allocate(state, op="get_rng_state", module=place.module, source=place.source)
        entry.on_host = self.target.name != "cpu"

    def _run_eagerly(self) -> None:
        """Switch compilation off, once the compiler is there: loading it for this would cost more than a second."""
        if not self._is_eager and "torch._dynamo" in sys.modules:
            self._exits.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", message="Using `torch.compile.*global hooks")  # which are ours
            self._exits.enter_context(torch.compiler.set_stance("force_eager"))
            self._is_eager = True


def _unwraps(types: Iterable[type]) -> bool:
    """Whether one of these is a tensor that runs operations on others inside it."""
    plain = torch._C._disabled_torch_dispatch_impl  # noqa: SLF001  # torch's mark of those that do not
    return any(cls not in _PLAIN and getattr(cls, "__torch_dispatch__", plain) is not plain for cls in types)
