"""Linear maps of one input as one product, where autocast would cast their weights anyway.

Three products of [tokens, D] with [D, D] take longer than one with [D, 3·D]: each is too small for the matrix units
(768 x 128 x 128 in BF16 on two Zen 4 cores: 263 GFLOP/s, as one 399). The input is cast once instead of three times and
kept once, and its gradient is one product instead of three and two sums. The weights stay parameters of their own, for
optimizers, checkpoints and ranks; their 16-bit copies, which the gradient keeps in any case, are laid side by side.
Where nothing is cast this copy would be one more, so the maps run one by one there.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from torchledger.trainer.held import held
from torchledger.trainer.linear import Linear

__all__ = ["Joint", "is_joint"]


def is_joint(x: Tensor, maps: Sequence[Linear]) -> bool:
    """Whether these maps of `x` run as one: under autocast, all with a bias or none, and no adapter beside one."""
    device = x.device.type
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return False
    return len({each.bias is None for each in maps}) == 1 and not any(each.rank for each in maps)


class Joint(nn.Module):
    """The place of the one product in the model; it has no parameters of its own."""

    def forward(self, x: Float[Tensor, "... inputs"], maps: Sequence[Linear]) -> Float[Tensor, "... outputs"]:
        """What the maps make of `x`, side by side, in the format of autocast.

        Args:
            x: the input of all of them.
            maps: with weights [outputs of one, inputs].
        """
        dtype = torch.get_autocast_dtype(x.device.type)
        narrow = x.to(dtype)
        weight = torch.cat([held(each.weight, sums=each.sums).to(dtype) for each in maps])
        bias = None
        if maps[0].bias is not None:
            bias = torch.cat([held(each.bias, sums=each.sums).to(dtype) for each in maps])
        return functional.linear(narrow, weight, bias)
