"""Multi-token prediction: further layers that each predict one more token ahead, to train the model better."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from torchledger.spec import ModelSpec
from torchledger.trainer.linear import Linear
from torchledger.trainer.norm import Norm
from torchledger.trainer.targets import IGNORED

__all__ = ["PREDICTION_WEIGHT", "Prediction", "ahead"]

#: What the mean loss of all prediction layers counts beside the model's own (DeepSeek-V3, arXiv:2412.19437, section
#: 4.2: for the first 10T of 14.8T tokens).
PREDICTION_WEIGHT = 0.3


class Prediction(nn.Module):
    """One layer further, with its own norms and map; embedding and head are the model's (arXiv:2412.19437, eqs. 21-24).

    Args:
        spec: the model.
        layer: the layer that it runs, one like the model's last.
    """

    def __init__(self, spec: ModelSpec, layer: nn.Module) -> None:
        super().__init__()
        D = spec.hidden_size
        self.hidden_norm, self.embedding_norm = Norm(D, spec.norm), Norm(D, spec.norm)
        self.projection = Linear(2 * D, D, bias=False)
        self.layer = layer
        self.final_norm = Norm(D, spec.norm) if spec.norm.final else None

    def forward(
        self, h: Float[Tensor, "batch length hidden"], known: Float[Tensor, "batch length hidden"]
    ) -> Float[Tensor, "batch length hidden"]:
        """What the layer reads: the stream so far and the embedding of the next known token, joined and mapped."""
        joined = torch.cat((self.hidden_norm(h), self.embedding_norm(known)), dim=-1)
        mapped: Tensor = self.projection(joined)
        return mapped.to(h.dtype)  # the stream keeps its format from layer to layer

    def beside_layer(self) -> list[nn.Module]:
        """All of it but the layer: norms and map."""
        parts = (self.hidden_norm, self.embedding_norm, self.projection, self.final_norm)
        return [part for part in parts if part is not None]


def ahead(targets: Int[Tensor, "batch length"], depth: int) -> Int[Tensor, "batch length"]:
    """The targets `depth` tokens further; those beyond the sequence do not count.

    >>> ahead(torch.tensor([[5, 6, 7]]), 1).tolist()
    [[6, 7, -100]]
    """
    if depth == 0:
        return targets
    beyond = min(depth, targets.shape[1])
    return functional.pad(targets[:, depth:], (0, beyond), value=IGNORED)
