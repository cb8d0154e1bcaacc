"""What storages are for: parameters, buffers, gradients and optimizer state, by the names their owners give them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from torchledger.tracer.graph import Graph
from torchledger.tracer.modules import buffers_of, parameters_of
from torchledger.tracer.storages import Storages

_ACCUMULATE = "torch::autograd::AccumulateGrad"


class Naming:
    """Names of parameters, and through them of their gradients and optimizer state.

    Attributes:
        assumptions: what was assumed of the models that were named.
    """

    def __init__(self, storages: Storages, graph: Graph) -> None:
        self.assumptions: list[str] = []
        self._storages = storages
        self._graph = graph
        self._names: dict[int, str] = {}
        self._sizes: dict[int, int] = {}

    @property
    def num_parameters(self) -> int:
        """Elements of all parameters, tied ones once."""
        return sum(self._sizes.values())

    def root(self, root: nn.Module, prefix: str = "") -> None:
        """Name what a model owns; names begin with the prefix."""
        for name, parameter in parameters_of(root, prefix).items():
            self._storages.name(parameter, "parameters", name)
            self._names[id(parameter)] = name
            self._sizes[id(parameter)] = parameter.numel()
            self._graph.add_constant(parameter.untyped_storage()._cdata)  # noqa: SLF001  # the storage's address
            if parameter.grad is not None:
                self._storages.name(parameter.grad, "gradients", name)
        for name, buffer in buffers_of(root, prefix).items():
            self._storages.name(buffer, "buffers", name)
            self._graph.add_constant(buffer.untyped_storage()._cdata)  # noqa: SLF001  # the storage's address
        if any(hasattr(module, "_orig_mod") for module in root.modules()):
            self.assumptions.append("compiled modules ran eagerly: they are counted as they are before compilation")

    def accumulates(self, node: Any) -> bool:
        """Whether a backward node puts a gradient in its place."""
        return node is not None and bool(node.name() == _ACCUMULATE)

    def name_of(self, node: Any) -> str:
        """Name of the parameter that an accumulating node is for."""
        return self._names.get(id(node.variable), "")

    def gradient(self, node: Any, results: list[torch.Tensor]) -> None:
        """What an accumulating node made is the gradient of its parameter."""
        for tensor in results:
            self._storages.name(tensor, "gradients", self.name_of(node))

    def optimized(self, optimizer: torch.optim.Optimizer) -> None:
        """What an optimizer works on are parameters, also where no module owns them."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in self._names:
                    self._storages.name(parameter, "parameters")

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> None:
        """What an optimizer keeps after its step is its state."""
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                if isinstance(value, torch.Tensor):
                    name = self._names.get(id(parameter), "")
                    self._storages.name(value, "optimizer state", f"{name}.{key}" if name else key)
