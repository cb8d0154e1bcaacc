"""Which phase of the step an operation belongs to, found by looking."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchledger.tracer.graph import is_recomputing
from torchledger.tracer.modules import ModuleStack


class Phases:
    """The phase of every moment.

    Inside autograd's engine it is `backward`; a forward pass in there (checkpointing) is `recompute`. Outside, without
    gradients and outside every module, it is `optimizer`: inside an optimizer's step, and after a backward pass
    (clipping, an update by hand, averages of weights). The rest is `forward`. A phase that was named goes first.

    Attributes:
        current: phase of the last operation.
        is_backward: whether the last operation ran inside autograd's engine.
    """

    def __init__(
        self, modules: ModuleStack, *, backward_begins: Callable[[], None], backward_ends: Callable[[], None]
    ) -> None:
        self.current = "forward"
        self.is_backward = False
        self._in_optimizer = False
        self._steps_inside = False
        self._modules = modules
        self._backward_begins = backward_begins
        self._backward_ends = backward_ends
        self._named: list[str] = []
        self._after_backward = False
        self._depth = 0

    @property
    def in_optimizer(self) -> bool:
        """Whether an optimizer's step is running."""
        return self._in_optimizer

    @in_optimizer.setter
    def in_optimizer(self, begins: bool) -> None:
        self._in_optimizer = begins
        # A hook of a parameter may step its optimizer inside the backward pass, as soon as its gradient is there; an
        # optimizer may itself run the whole step (a closure).
        self._steps_inside = begins and torch._C._current_graph_task_id() != -1  # noqa: SLF001  # as in `find`

    @contextlib.contextmanager
    def named(self, name: str) -> Iterator[None]:
        """Everything inside is of this phase."""
        self._named.append(name)
        before, self.current = self.current, name
        try:
            yield
        finally:
            self._named.pop()
            self.current = before

    def find(self, node: Any) -> str:
        """Phase of the operation that is about to run inside backward `node` (or none)."""
        inside = torch._C._current_graph_task_id() != -1  # noqa: SLF001  # whether autograd's engine runs; no public door
        if inside != self.is_backward:
            self._cross(inside=inside)
        found = self._inside(node) if inside else self._outside()
        self.current = self._named[-1] if self._named else found
        return self.current

    @property
    def runs_modules_again(self) -> bool:
        """Whether modules run inside the backward pass."""
        return self._modules.depth > self._depth

    def end(self) -> None:
        """The recording ends: so does a backward pass that nothing came after."""
        if self.is_backward:
            self._cross(inside=False)

    def _cross(self, *, inside: bool) -> None:
        self.is_backward = inside
        if inside:
            self._after_backward = True
            self._depth = self._modules.depth
            self._backward_begins()
        else:
            self._backward_ends()

    def _inside(self, node: Any) -> str:
        if self._steps_inside:
            return "optimizer"
        # The forward of a user's own autograd function runs without gradients, also where its module runs again.
        if self.runs_modules_again:
            return "recompute"
        # The backward pass itself runs without gradients, unless its own gradient is wanted (create_graph).
        if torch.is_grad_enabled() and (
            is_recomputing() or (node is not None and node.name() == "CheckpointFunctionBackward")
        ):
            return "recompute"
        return "backward"

    def _outside(self) -> str:
        if self._modules.depth:
            self._after_backward = False
        elif (self._after_backward or self.in_optimizer) and not torch.is_grad_enabled():
            return "optimizer"
        return "forward"
