"""Operations that torch runs in place, and out of place while a dispatch mode runs: as they are without one.

Torch takes a dispatch mode for a tensor subclass, whose tensors it never writes in place by itself. Three places ask:
the engine's sums (`accumulation`), gradients that are filled zeros (`filling`), and the bias of a linear layer whose
input is not contiguous (`linear` in aten/src/ATen/native/Linear.cpp): a product, to which the bias is added in place.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from torchledger.tracer.accumulation import accumulates_in_place
from torchledger.tracer.filling import filled_in_place

_ATEN = torch.ops.aten
_ADD, _ADD_IN_PLACE = _ATEN.add.Tensor, _ATEN.add_.Tensor
_PRODUCTS = frozenset({_ATEN.mm.default, _ATEN.bmm.default, _ATEN.mv.default})
#: Changes the shape of the product and computes nothing.
_SHAPING = frozenset({_ATEN._unsafe_view.default})  # noqa: SLF001  # its name begins so


class InPlace:
    """Finds what would run in place; knows which call of Python ran the last product."""

    __slots__ = ("_product",)

    def __init__(self) -> None:
        self._product: tuple[int, int] | None = None

    def __call__(self, func: Any, node: Any, args: tuple[Any, ...]) -> Any:
        """The operation as it would run without a dispatch mode.

        Args:
            func: the operation, from the recorder's own dispatch.
            node: the node of autograd that runs, or has just run.
            args: its arguments.
        """
        caller = sys._getframe(2)  # noqa: SLF001  # who called the recorder
        if func in _PRODUCTS:
            self._product = (id(caller), caller.f_lasti)
            return func
        if func is _ADD and (
            self._is_of_linear(args, (id(caller), caller.f_lasti))
            or accumulates_in_place(node, args, caller.f_code.co_name)
        ):
            func = _ADD_IN_PLACE
        if func not in _SHAPING:
            self._product = None
        return filled_in_place(func, args, caller.f_code.co_name)

    def _is_of_linear(self, args: tuple[Any, ...], call: tuple[int, int]) -> bool:
        """Whether a row is added to a product by the same instruction of Python that ran the product."""
        if self._product != call or len(args) != 2 or not isinstance(args[1], torch.Tensor):
            return False
        product, bias = args
        return bool(bias.dim() == 1 and product.dim() and product.dtype == bias.dtype)
