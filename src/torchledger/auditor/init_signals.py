"""One forward and backward pass looked at: how large signals are at every module, and gradients on their way back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from torchledger.auditor.init_gates import Gate
from torchledger.auditor.init_size import Size, size_of
from torchledger.auditor.init_uses import Use, Uses
from torchledger.auditor.subject import Subject


@dataclass(slots=True)
class Call:
    """One call of a module that has parameters.

    Attributes:
        place: its path; of a module with several, the first.
        kind: the name of its class.
        order: calls that began before it.
        num_parameters: of it and all below.
        reads: size of the first float tensor that it takes.
        writes: size of the first float tensor that it gives.
        epsilon: of a norm: what it adds to the variance or mean square.
        gradient: size of the loss's gradient by what it gives; nothing where none arrived.
        ended: calls that ended before it; nothing where it gave no float tensor.
    """

    place: str
    kind: str
    order: int
    num_parameters: int
    reads: Size | None = None
    writes: Size | None = None
    epsilon: float | None = None
    gradient: Size | None = None
    ended: int | None = None


@dataclass(slots=True)
class Signals:
    """What one step of a model does.

    Attributes:
        loss: of the batch.
        calls: of modules with parameters, in the order in which they began.
        uses: of parameters, in the order in which they were first read.
        gates: in the order in which they ran.
        touched: parameters that any operation read.
        gradients: size of each parameter's gradient; nothing for one that got none.
        gradient_of: the gradients themselves, alive as long as this is.
    """

    loss: float
    calls: list[Call] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    gates: list[Gate] = field(default_factory=list)
    touched: frozenset[str] = frozenset()
    gradients: Mapping[str, Size | None] = field(default_factory=dict)
    gradient_of: Mapping[str, Tensor | None] = field(default_factory=dict)


def look(subject: Subject) -> Signals:
    """Run one step and look at it. The caller puts the subject back (`left_as_it_was`)."""
    model = subject.model
    for parameter in model.parameters():
        parameter.grad = None
    with torch.enable_grad():
        watch = _Watch(model)
        uses = Uses(model, watch.place)
        with watch.watching(), uses:
            loss = subject.forward()
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]  # torch's function has no types
    gradients = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
    return Signals(
        loss=float(loss.detach()),
        calls=watch.calls,
        uses=list(uses.seen.uses.values()),
        gates=uses.seen.gates,
        touched=frozenset(uses.seen.touched),
        gradients={name: None if g is None else size_of(g) for name, g in gradients.items()},
        gradient_of=gradients,
    )


class _Watch:
    """Hooks on every module at once, which torch keeps apart from the modules: nothing is put on the model."""

    def __init__(self, model: nn.Module) -> None:
        self.calls: list[Call] = []
        self._paths: dict[int, str] = {}
        for path, module in model.named_modules():
            self._paths.setdefault(id(module), path)
        self._counts = {id(m): sum(p.numel() for p in m.parameters()) for m in model.modules()}
        self._num_ended = 0
        self._running: list[tuple[int, Call | None]] = []

    def place(self) -> str:
        """Path of the module that is running."""
        return self._paths.get(self._running[-1][0], "") if self._running else ""

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        handles = (
            register_module_forward_pre_hook(self._begin),
            register_module_forward_hook(self._end, always_call=True),
        )
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _begin(self, module: nn.Module, args: Any) -> None:
        call = None
        if id(module) in self._paths and self._counts[id(module)]:
            call = Call(
                self._paths[id(module)], type(module).__name__, len(self.calls), self._counts[id(module)],
                epsilon=_epsilon(module),
            )  # fmt: skip
            with _unseen():
                call.reads = _size(args)
            self.calls.append(call)
        self._running.append((id(module), call))

    def _end(self, module: nn.Module, args: Any, output: Any) -> None:
        del args
        while self._running:
            ident, call = self._running.pop()
            if ident == id(module):
                break
        else:
            return
        tensor = first_tensor(output)
        if call is None or tensor is None:
            return
        with _unseen():
            call.writes = size_of(tensor)
        call.ended = self._num_ended
        self._num_ended += 1
        if tensor.requires_grad:

            def arrived(gradient: Tensor, call: Call = call) -> None:
                call.gradient = size_of(gradient)

            tensor.register_hook(arrived)  # type: ignore[no-untyped-call]  # torch's function has no types


def first_tensor(found: Any) -> Tensor | None:
    """The first float tensor of what a module takes or gives, however it is wrapped."""
    if isinstance(found, Tensor):
        return found if found.is_floating_point() else None
    if isinstance(found, Mapping):
        found = tuple(found.values())
    if isinstance(found, (tuple, list)):
        return next((t for each in found if (t := first_tensor(each)) is not None), None)
    return None


def _size(args: Any) -> Size | None:
    tensor = first_tensor(args)
    return None if tensor is None else size_of(tensor)


def _epsilon(module: nn.Module) -> float | None:
    """What a norm adds, by the names that norms give it."""
    if "norm" not in type(module).__name__.lower():
        return None
    found = (getattr(module, name, None) for name in ("eps", "epsilon", "variance_epsilon"))
    return next((float(each) for each in found if isinstance(each, (int, float))), None)


@contextlib.contextmanager
def _unseen() -> Iterator[None]:
    """Looking is no operation of the model."""
    with torch.no_grad(), torch.utils._python_dispatch._disable_current_modes():  # noqa: SLF001  # as torch's own tools do
        yield
