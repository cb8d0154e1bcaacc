"""A model stored in 16 bit, the FP32 copies that its optimizer updates, and the linear maps that compute in FP8."""

from collections import deque

import torch
from torch import Tensor, nn

from torchledger.formula.narrow import runs_narrow
from torchledger.formula.precision import FORMATS
from torchledger.trainer.linear import Linear

__all__ = ["narrow", "narrow_products"]

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@torch.no_grad()
def narrow(model: nn.Module, precision: str) -> dict[Tensor, Tensor]:
    """Put the parameters of `model` into the format that `precision` stores them in; buffers stay as they are.

    A master copy keeps all digits of the first values: rounding to 16 bit and back would lose them. A parameter that
    two modules share (a tied head) stays one. One after the other: the model is never there twice.

    Args:
        model: its parameters are FP32; each becomes another object, so an optimizer is made afterwards.
        precision: `Recipe.precision`.

    Returns:
        Parameter -> its FP32 copy, for those that take gradients; empty where the precision has no master copy.
    """
    formats = FORMATS[precision]
    if formats.stored == "fp32":
        return {}
    dtype = _DTYPES[formats.stored]
    if hasattr(model, "reshard"):  # FSDP2's, whose import alone takes a second
        return _narrow_shards(model, dtype, has_masters=bool(formats.master))
    masters: dict[Tensor, Tensor] = {}
    waiting = _by_size(model)
    while waiting:
        parameter, places = waiting.popleft()
        small = nn.Parameter(parameter.to(dtype), requires_grad=parameter.requires_grad)
        if formats.master and parameter.requires_grad:
            masters[small] = parameter.detach()
        for module, name in places:
            setattr(module, name, small)
        del parameter  # the last that holds it, so that its FP32 values go before the next one's are copied
    return masters


def _narrow_shards(model: nn.Module, dtype: torch.dtype, *, has_masters: bool) -> dict[Tensor, Tensor]:
    """The same where ranks hold shards, which FSDP2 keeps a note of each: it takes new ones by `_apply` alone.

    Parameters stay the objects that they were. The copies are the shards of before.
    """
    masters: dict[Tensor, Tensor] = {}

    def small(tensor: Tensor) -> Tensor:
        if not hasattr(tensor, "placements") or tensor.dtype == dtype:  # a buffer; one of two that share a parameter
            return tensor
        if has_masters and tensor.requires_grad:
            masters[tensor] = tensor.detach()
        return tensor.to(dtype)

    model._apply(small)  # type: ignore[no-untyped-call]  # noqa: SLF001  # what `Module.to` calls, buffers included
    return masters


def _by_size(model: nn.Module) -> deque[tuple[nn.Parameter, list[tuple[nn.Module, str]]]]:
    """Every parameter once, the smallest first, and where it stands.

    In that order the FP32 values that are gone make room for the large copies.
    """
    places: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            places.setdefault(parameter, []).append((module, name))
    return deque(sorted(places.items(), key=lambda each: each[0].numel()))


def narrow_products(model: nn.Module, precision: str) -> None:
    """Let the linear maps of attention and MLP compute in the narrow format of `precision`; nothing where it has none.

    Embedding, head and what maps in and out of an embedding are outside of the layers, a router is no linear map, and
    adapters come later: they stay in 16 bit. So does a map whose sizes are no multiples of 16.

    Args:
        model: one of `model.build`.
        precision: `Recipe.precision`.
    """
    if FORMATS[precision].narrow:
        for name, module in model.named_modules():
            if isinstance(module, Linear) and {"attention", "mlp"} & set(name.split(".")):
                module.is_narrow = runs_narrow(module.in_features, module.out_features)
