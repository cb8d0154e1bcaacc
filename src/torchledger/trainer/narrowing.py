"""A model stored in 16 bit, the FP32 copies that its optimizer updates, and the linear maps that compute in FP8."""

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
    two modules share (a tied head) stays one.

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
    narrowed: dict[Tensor, nn.Parameter] = {}
    masters: dict[Tensor, Tensor] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            if parameter not in narrowed:
                small = nn.Parameter(parameter.to(dtype), requires_grad=parameter.requires_grad)
                narrowed[parameter] = small
                if formats.master and parameter.requires_grad:
                    masters[small] = parameter.detach()
            setattr(module, name, narrowed[parameter])
    return masters


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
