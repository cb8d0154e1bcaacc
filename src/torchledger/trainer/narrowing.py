"""A model stored in 16 bit, and the FP32 copies that its optimizer updates."""

import torch
from torch import Tensor, nn

from torchledger.formula.precision import FORMATS

__all__ = ["narrow"]

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
