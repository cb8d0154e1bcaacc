"""The feed-forward part of a layer."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from torchledger.spec import MlpSpec
from torchledger.trainer.linear import Linear

__all__ = ["Mlp"]


def _relu_squared(x: Tensor) -> Tensor:
    """ReLU², Primer (So et al., arXiv:2109.08668)."""
    return functional.relu(x).square()


def _gelu_tanh(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": _gelu_tanh,
    "relu": functional.relu,
    "relu_squared": _relu_squared,
}


class Mlp(nn.Module):
    """`down(activation(up(x)))`, or gated `down(activation(gate(x)) * up(x))` (Shazeer, arXiv:2002.05202, eq. 5).

    Args:
        hidden_size: width D of the residual stream.
        spec: inner width F, activation, gate and biases.
    """

    def __init__(self, hidden_size: int, spec: MlpSpec) -> None:
        super().__init__()
        inner = spec.intermediate_size
        self.gate = Linear(hidden_size, inner, bias=spec.up_bias) if spec.kind == "gated" else None
        self.up = Linear(hidden_size, inner, bias=spec.up_bias)
        self.down = Linear(inner, hidden_size, bias=spec.down_bias)
        self.activation = ACTIVATIONS[spec.activation]

    def forward(self, x: Float[Tensor, "... hidden"]) -> Float[Tensor, "... hidden"]:
        """Each token by itself."""
        if self.gate is None:
            plain: Tensor = self.down(self.activation(self.up(x)))
            return plain
        gated: Tensor = self.down(self.activation(self.gate(x)) * self.up(x))
        return gated
