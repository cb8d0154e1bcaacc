"""`Recorder`: looks at every operation of a step, on fake tensors or real ones, and leaves nothing behind."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Self

import torch
from torch import nn
from torch.optim import optimizer as optimizer_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from torchledger.ledger import GradientOf
from torchledger.tracer.books import ledger_of
from torchledger.tracer.call import Call
from torchledger.tracer.graph import PRODUCTS, Graph, Place, is_recomputing
from torchledger.tracer.modules import ModuleStack, buffers_of, parameters_of
from torchledger.tracer.result import Trace
from torchledger.tracer.scalars import SAVING, SavedScalars
from torchledger.tracer.signature import Encoder, Signature, TensorMeta, decode, meta_of, with_wrapped_number
from torchledger.tracer.source import current_source
from torchledger.tracer.storages import Storages

_ACCUMULATE = "torch::autograd::AccumulateGrad"
_DEVICE = torch.ops.prim.device.default
_NO_OPERATIONS = frozenset({"profiler", "prim"})
_LIFT_FRESH = torch.ops.aten.lift_fresh.default
_DETACH = torch.ops.aten.detach.default


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's class has no types
    """Records the operations and allocations of the code that runs inside it.

    ::

        with Recorder() as recorder:
            loss = model(batch).sum()
            loss.backward()
            with recorder.phase("optimizer"):
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        trace = recorder.trace()

    Phases are found by themselves: the forward pass, the backward pass (inside autograd's engine), recomputation (a
    forward pass inside it), the optimizer (inside any `torch.optim.Optimizer.step`, or outside every module without
    gradients once a backward pass has run). `phase` names one explicitly.
    """

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # The compiler never traces code under a mode; its wrapper would only cost time at every operation.
        return False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.modules = ModuleStack(self._register_root)
        self.storages = Storages()
        self.graph = Graph()
        self.scalars = SavedScalars(self.storages)
        self.assumptions: list[str] = []
        self._parameters: dict[int, int] = {}
        self.marks: dict[str, tuple[int, int]] = {}
        self._calls: list[Call] = []
        self._positions: list[int] = []
        self._signatures: dict[Any, Signature] = {}
        self._results: dict[Signature, tuple[TensorMeta, ...]] = {}
        self._encoder = Encoder()
        self._phases: list[str] = []
        self._graph_task = -1
        self._after_backward = False
        self._depth_before_backward = 0
        self._names: dict[int, str] = {}
        self._exits = contextlib.ExitStack()

    # ------------------------------------------------------------------------------------------------ coming and going

    def __enter__(self) -> Self:
        self.modules.watch()
        self._exits.callback(self.modules.unwatch)
        before = optimizer_hooks.register_optimizer_step_pre_hook(self._before_optimizer)
        self._exits.callback(before.remove)
        after = optimizer_hooks.register_optimizer_step_post_hook(self._after_optimizer)
        self._exits.callback(after.remove)
        self._exits.enter_context(_seen_rng_states(self._adopt_rng_state))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            super().__exit__(*exception)  # type: ignore[no-untyped-call]
        finally:
            self._exits.close()
            if self._graph_task != -1:  # the last operation was autograd's
                self.scalars.backward_ended()
            self.storages.close()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Operations inside are of this phase, whatever they look like."""
        self._phases.append(name)
        before, self.storages.phase = self.storages.phase, name
        try:
            yield
        finally:
            self._phases.pop()
            self.storages.phase = before

    def mark(self, name: str) -> None:
        """Name this moment (`step 2`)."""
        self.marks[name] = (self.storages.num_events, len(self._calls))

    def register(self, model: nn.Module) -> None:
        """Name a model's modules, parameters and buffers; what runs unregistered is named when it first runs."""
        self.modules.register(model)

    def register_inputs(self, tensors: list[torch.Tensor]) -> None:
        """Say that these tensors are the step's inputs."""
        for tensor in tensors:
            self.storages.name(tensor, "inputs")

    def trace(self, *, since: str = "") -> Trace:
        """What was recorded so far; the ledger is of the operations after the mark `since`."""
        _, first_call = self.marks.get(since, (0, 0))
        kept: dict[int, int] = {}
        for entry in self.storages.entries:
            if entry.call >= first_call and self.storages.part(entry) == "activations":
                kept[entry.call] = kept.get(entry.call, 0) + entry.num_bytes
        calls = [
            (index, call) for index, call in enumerate(self._calls[first_call:], first_call) if call.phase != "build"
        ]
        assumptions = tuple(dict.fromkeys(self.assumptions))
        marks = {name: events for name, (events, _) in self.marks.items()}
        return Trace(
            ledger=ledger_of(calls, self._results, kept, assumptions),
            timeline=self.storages.timeline(tuple(self._positions), marks),
            calls=tuple(self._calls),
            first_call=first_call,
            num_parameters=sum(self._parameters.values()),
            assumptions=assumptions,
        )

    # ---------------------------------------------------------------------------------------------------- one operation

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is _DEVICE:  # a question that only fake tensors are asked
            return args[0].device
        if func.namespace in _NO_OPERATIONS:
            return func(*args, **kwargs)
        if func is _DETACH:
            return self._detach(func, args, kwargs)
        tensors: list[torch.Tensor] = []
        key = self._encoder.key(args, kwargs, tensors)
        addresses = [tensor.untyped_storage()._cdata for tensor in tensors]  # noqa: SLF001  # the storage's address
        node: Any = torch._C._current_autograd_node()  # noqa: SLF001  # autograd has no public door to the running node
        phase, place = self._now(node)
        if func is not _LIFT_FRESH:  # whose operand is the result's own storage, or the constant that a fake stands for
            for tensor, address in zip(tensors, addresses, strict=True):
                if address not in self.storages:
                    self.storages.allocate(tensor, op="")
        if func.is_view:  # no work and no memory; its place is remembered for what its gradient does
            return func(*args, **kwargs)
        gradient_of: GradientOf = "none"
        if func in PRODUCTS:
            if phase == "backward":
                gradient_of = self.graph.gradient_of(node, addresses)
            else:
                self.graph.forward_product(addresses)
        if phase == "backward":
            self.scalars.entered(node)
            if func in SAVING and not isinstance(args[1], torch.Tensor):
                key = with_wrapped_number(key)
        index = len(self._calls)
        self._positions.append(self.storages.num_events)
        result = func(*args, **kwargs)
        results = _tensors(result)
        self._allocate(results, addresses, func, place, index, is_factory=not tensors)
        if func in SAVING and phase != "backward":
            self.scalars.saved(args, place, index)
        if node is not None and phase == "backward" and node.name() == _ACCUMULATE:
            self._name_gradient(node, results)
        signature = self._signature(func, key, results)
        self._calls.append(Call(signature, place.module, phase, gradient_of, place.kind, place.source))
        return result

    def _detach(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
        """An alias: no work, no storage. Fake tensors detach whenever autograd saves one, real ones do not."""
        alias: torch.Tensor = func(*args, **kwargs)
        node: Any = torch._C._current_autograd_node()  # noqa: SLF001  # autograd has no public door to the running node
        if node is not None and node.name() == _ACCUMULATE:
            self._name_gradient(node, [alias])
        return alias

    def _now(self, node: Any) -> tuple[str, Place]:
        """Phase and place of the operation that is about to run."""
        modules = self.modules
        task = torch._C._current_graph_task_id()  # noqa: SLF001  # -1 outside autograd's engine
        if task == -1:
            if self._graph_task != -1:
                self.scalars.backward_ended()
            self._graph_task = -1
            phase = self._outside_backward()
            place = Place(modules.path, modules.kind, current_source())
            self.graph.remember(place)
        else:
            if self._graph_task == -1:
                self._begin_backward()
            self._graph_task = task
            if torch.is_grad_enabled() and self._is_recompute(node):
                phase = "recompute"
                if modules.depth > self._depth_before_backward:
                    place = Place(modules.path, modules.kind, current_source())
                else:
                    place = self._backward_place(node)
                self.graph.remember(place)
            else:
                phase, place = "backward", self._backward_place(node)
                if torch.is_grad_enabled():
                    self.graph.remember(place)
        if self._phases:
            phase = self._phases[-1]
        self.storages.phase = phase
        return phase, place

    def _outside_backward(self) -> str:
        if self.modules.depth:
            self._after_backward = False
        elif self._after_backward and not torch.is_grad_enabled():
            return "optimizer"
        return "forward"

    def _begin_backward(self) -> None:
        """The engine has started. The gradient of the loss itself, made just before, belongs to the backward pass."""
        self._after_backward = True
        self._depth_before_backward = self.modules.depth
        last = self._calls[-1] if self._calls else None
        if last is not None and last.signature.op == "aten.ones_like.default" and last.phase == "forward":
            self._calls[-1] = Call(last.signature, last.module, "backward", "none", last.kind, last.source)
            entry = self.storages.entries[-1]
            if entry.call == len(self._calls) - 1:
                entry.phase = "backward"
        self.storages.backward_starts()

    def _is_recompute(self, node: Any) -> bool:
        if self.modules.depth > self._depth_before_backward:
            return True
        if node is not None and node.name() == "CheckpointFunctionBackward":
            return True
        return is_recomputing()

    def _backward_place(self, node: Any) -> Place:
        if node is not None and node.name() == _ACCUMULATE:
            name = self._names.get(id(node.variable), "")
            return Place(name.rpartition(".")[0], "", "")
        return self.graph.place(node) if node is not None else Place("", "", "")

    def _allocate(
        self, results: list[torch.Tensor], operands: list[int], func: Any, place: Place, call: int, *, is_factory: bool
    ) -> None:
        for tensor in results:
            address = tensor.untyped_storage()._cdata  # noqa: SLF001  # the storage's address
            if address in self.storages:
                continue
            entry = self.storages.allocate(tensor, op=str(func), module=place.module, source=place.source, call=call)
            if is_factory and entry.phase == "forward" and not self.modules.depth:
                entry.part = "inputs"
            self.graph.follow(operands, address)

    def _signature(self, func: Any, key: Any, results: list[torch.Tensor]) -> Signature:
        signature = self._signatures.get((func, key))
        if signature is None:
            signature = self._signatures[func, key] = decode(str(func), key)
            self._results[signature] = tuple(meta_of(tensor) for tensor in results)
        return signature

    # ---------------------------------------------------------------------------------------- what storages are for

    def _register_root(self, root: nn.Module) -> None:
        for name, parameter in parameters_of(root).items():
            self.storages.name(parameter, "parameters", name)
            self._names[id(parameter)] = name
            self._parameters[id(parameter)] = parameter.numel()
            self.graph.add_parameter(parameter.untyped_storage()._cdata)  # noqa: SLF001  # the storage's address
            if parameter.grad is not None:
                self.storages.name(parameter.grad, "gradients", name)
        for name, buffer in buffers_of(root).items():
            self.storages.name(buffer, "buffers", name)

    def _name_gradient(self, node: Any, results: list[torch.Tensor]) -> None:
        name = self._names.get(id(node.variable), "")
        for tensor in results:
            self.storages.name(tensor, "gradients", name)

    def _before_optimizer(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in self._names:
                    self.storages.name(parameter, "parameters")
        self._phases.append("optimizer")

    def _after_optimizer(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        self._phases.pop()
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                if isinstance(value, torch.Tensor):
                    name = self._names.get(id(parameter), "")
                    self.storages.name(value, "optimizer state", f"{name}.{key}" if name else key)

    def _adopt_rng_state(self, state: torch.Tensor) -> None:
        _, place = self._now(torch._C._current_autograd_node())  # noqa: SLF001  # no public door to the running node
        self.storages.allocate(state, op="get_rng_state", module=place.module, source=place.source)


def _tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, (tuple, list)):
        return [tensor for item in result for tensor in _tensors(item)]
    return []


@contextlib.contextmanager
def _seen_rng_states(adopt: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Show every saved state of the CPU generator to `adopt`: torch allocates it below every mode.

    Checkpointing keeps one a block (`preserve_rng_state`), 5,056 bytes each.
    """
    original = torch.get_rng_state

    def get_rng_state() -> torch.Tensor:
        state = original()
        adopt(state)
        return state

    torch.get_rng_state = torch.random.get_rng_state = get_rng_state
    try:
        yield
    finally:
        torch.get_rng_state = torch.random.get_rng_state = original
