"""Where autograd is: the forward place of a backward node, and whose gradient a product makes."""

from __future__ import annotations

from typing import Any

import torch

from torchledger.ledger import GradientOf
from torchledger.tracer.layouts import held

_A = torch.ops.aten
_ALL, _FIRST_TWO, _LAST_TWO = slice(None), slice(0, 2), slice(-2, None)
#: Contractions whose backward is made of contractions again, so that only their operands tell the gradients apart, and
#: which of their tensors those operands are.
PRODUCTS: dict[Any, slice] = {
    **dict.fromkeys((_A.mm.default, _A.bmm.default, _A.mv.default, _A.dot.default, _A.vdot.default), _LAST_TWO),
    **dict.fromkeys((_A.mm.dtype, _A.bmm.dtype, _A.addmm.dtype, _A.baddbmm.dtype), _LAST_TWO),
    **dict.fromkeys((_A.addmm.default, _A.addmm_.default, _A.baddbmm.default, _A.baddbmm_.default), _LAST_TWO),
    **dict.fromkeys((_A.addbmm.default, _A.addbmm_.default, _A.addmv.default, _A.addr.default), _LAST_TWO),
    **dict.fromkeys((_A.linear.default, _A.matmul.default, _A._grouped_mm.default), _FIRST_TWO),  # noqa: SLF001  # torch's own name
    **dict.fromkeys((_A._scaled_mm.default, _A._scaled_mm_v2.default), _FIRST_TWO),  # noqa: SLF001  # as above
    **dict.fromkeys((_A._scaled_grouped_mm.default, _A._scaled_grouped_mm_v2.default), _FIRST_TWO),  # noqa: SLF001  # as above
    **dict.fromkeys((_A._euclidean_dist.default, _A.conv_tbc.default), _FIRST_TWO),  # noqa: SLF001  # as above
    _A._trilinear.default: _ALL,  # noqa: SLF001  # as above
    _A._sparse_mm.default: _ALL,  # noqa: SLF001  # as above
}


def is_recomputing() -> bool:
    """Whether non-reentrant checkpointing is running a forward pass again; its hook on saved tensors tells."""
    hooks: Any = torch._C._autograd._top_saved_tensors_default_hooks(True)  # noqa: SLF001  # how checkpointing shows
    return hooks is not None and "_recomputation_hook" in getattr(hooks[0], "__qualname__", "")


class Place:
    """Where an operation ran: module path, the kind that module asks for, source line, what its mask lets through."""

    __slots__ = ("kind", "module", "source", "visible")

    def __init__(
        self, module: str = "", kind: str = "", source: str = "", visible: tuple[int, int] | None = None
    ) -> None:
        self.module = module
        self.kind = kind
        self.source = source
        self.visible = visible


class Graph:
    """Places by autograd sequence number, and which storages hold functions of parameters and buffers alone.

    torch numbers autograd nodes as it makes them, just before it dispatches the operation. So the first operation that
    is dispatched after node n was made is node n's own, and in the backward pass node n leads back to it.
    """

    def __init__(self) -> None:
        self._places: dict[int, Place] = {}
        self._parameter_operands: dict[int, int] = {}
        self._of_parameters: set[int] = set()
        self._last = Place()

    def remember(self, place: Place) -> None:
        """The operation about to run stands at `place`; its node, if it made one, is the last one numbered."""
        self._places.setdefault(torch.autograd._get_sequence_nr() - 1, place)  # type: ignore[attr-defined]  # noqa: SLF001  # autograd's numbering has no public door

    def place(self, node: Any) -> Place:
        """Forward place of a backward node; of the node before where it has none, or where no node runs."""
        place = None if node is None else self._places.get(node._sequence_nr())  # noqa: SLF001  # see `remember`
        if place is not None:
            self._last = place
        return self._last

    def add_constant(self, tensor: torch.Tensor) -> None:
        """The tensor is a parameter or a buffer."""
        self._of_parameters.update(holder.untyped_storage()._cdata for holder in held(tensor))  # noqa: SLF001  # the storage's address

    def follow(self, operands: list[int], result: int) -> None:
        """The storage `result` was made of `operands`: it is a function of parameters if all of them are."""
        if operands and self._of_parameters.issuperset(operands):
            self._of_parameters.add(result)
        else:
            self._of_parameters.discard(result)

    def forward_product(self, operands: list[int]) -> None:
        """A product is about to run in the forward pass: remember how many of its operands come from parameters."""
        number = torch.autograd._get_sequence_nr() - 1  # type: ignore[attr-defined]  # noqa: SLF001  # see `remember`
        from_parameters = sum(address in self._of_parameters for address in operands)
        self._parameter_operands[number] = max(from_parameters, self._parameter_operands.get(number, 0))

    def gradient_of(self, node: Any, operands: list[int]) -> GradientOf:
        """Whose gradient a product in the backward pass makes.

        For y = x·W the gradient of x is made of W, that of W is not. A product of two activations (attention) has
        inputs only, one of two functions of parameters (a low-rank weight, merged) weights only.
        """
        from_parameters = self._parameter_operands.get(node._sequence_nr(), 0) if node is not None else 0  # noqa: SLF001  # see `remember`
        if from_parameters == 0:
            return "input"
        if from_parameters == 2:
            return "weight"
        return "input" if any(address in self._of_parameters for address in operands) else "weight"
