"""The feed-forward part of a layer as the trainer's allocates (`trainer.mlp`)."""

from __future__ import annotations

from torchledger.formula.lifetimes.modules import Module
from torchledger.formula.lifetimes.operations import mul, plain, square
from torchledger.formula.lifetimes.tensors import Tensor
from torchledger.spec import MlpSpec


def mlp(module: Module, x: Tensor, spec: MlpSpec) -> Tensor:
    """down(activation(up(x))), or gated down(activation(gate(x)) · up(x))."""
    inner = spec.intermediate_size
    if spec.kind != "gated":
        return module.linear(
            "down",
            activated(module.linear("up", x, inner, bias=spec.up_bias), spec.activation),
            module.spec.hidden_size,
            bias=spec.down_bias,
        )
    return module.linear("down", _gated(module, x, spec), module.spec.hidden_size, bias=spec.down_bias)


def _gated(module: Module, x: Tensor, spec: MlpSpec) -> Tensor:
    inner = spec.intermediate_size
    gate = activated(module.linear("gate", x, inner, bias=spec.up_bias), spec.activation)
    return mul(gate, module.linear("up", x, inner, bias=spec.up_bias))


def activated(x: Tensor, kind: str) -> Tensor:
    """GELU and SiLU keep their input, ReLU its result, its square ReLU's result."""
    if kind == "relu":
        return plain(x, keeps="result")
    if kind == "relu_squared":
        return square(plain(x, keeps="result"))
    return plain(x, keeps="operand")
