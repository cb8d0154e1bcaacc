"""What storages are for: parameters, buffers, gradients and optimizer state, by the names their owners give them."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import nn

from torchledger.tracer.graph import Graph
from torchledger.tracer.layouts import held, unwrapped
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
        self._parameters: list[weakref.ref[torch.Tensor]] = []

    @property
    def num_parameters(self) -> int:
        """Elements of all parameters, tied ones once."""
        return sum(self._sizes.values())

    def root(self, root: nn.Module, prefix: str = "") -> None:
        """Name what a model owns; names begin with the prefix."""
        for name, owned in parameters_of(root, prefix).items():
            parameter = unwrapped(owned)
            self._storages.name(parameter, "parameters", name)
            self._names[id(parameter)] = name
            self._sizes[id(parameter)] = parameter.numel()
            self._graph.add_constant(parameter)
            self._parameters.append(weakref.ref(parameter))
            if parameter.grad is not None:
                self._storages.name(parameter.grad, "gradients", name)
        for name, buffer in buffers_of(root, prefix).items():
            self._storages.name(buffer, "buffers", name)
            self._graph.add_constant(unwrapped(buffer))
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

    def gathered(self, parameter: torch.Tensor, name: str) -> None:
        """The whole of a parameter of which this rank keeps a part: it is there for a while."""
        self._storages.name(parameter, "parameters", f"{name} (gathered)")
        self._names[id(parameter)] = f"{name} (unreduced)"
        self._graph.add_constant(parameter)

    def gradients(self) -> None:
        """Name the gradients that were put in their place by hand, and not by autograd."""
        sharing: dict[int, list[tuple[torch.Tensor, str]]] = {}
        for reference in self._parameters:
            parameter = reference()
            for holder in [] if parameter is None or parameter.grad is None else held(parameter.grad):
                address = holder.untyped_storage()._cdata  # noqa: SLF001  # the storage's address
                sharing.setdefault(address, []).append((holder, self._names[id(parameter)]))
        for owners in sharing.values():
            self._storages.name(owners[0][0], "gradients", _common([name for _, name in owners]))

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


def _common(names: list[str]) -> str:
    """One name for a storage of several parameters: the module that all of them are in."""
    if len(names) == 1:
        return names[0]
    common = []
    for parts in zip(*(name.split(".")[:-1] for name in names), strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return ".".join([*common, "*"])
