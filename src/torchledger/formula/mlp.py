"""The feed-forward part of a layer, walked on the tape."""

from __future__ import annotations

from torchledger.formula.dense import linear
from torchledger.formula.pointwise import activation, gated, multiplied
from torchledger.formula.tape import Tape
from torchledger.formula.value import Value
from torchledger.spec import MlpSpec


def mlp(tape: Tape, path: str, x: Value, spec: MlpSpec) -> Value:
    """down(activation(up(x))), or gated down(activation(gate(x)) · up(x)) (Shazeer, arXiv:2002.05202, equation 5)."""
    F, D = spec.intermediate_size, x.shape[-1]
    with tape.inside(path):
        if spec.kind == "gated":
            inner = _gated(tape, x, spec)
        else:
            inner = activation(tape, "", linear(tape, "up", x, F, bias=spec.up_bias, inner=True), spec.activation)
        return linear(tape, "down", inner, D, bias=spec.down_bias, inner=True)


def _gated(tape: Tape, x: Value, spec: MlpSpec) -> Value:
    F = spec.intermediate_size
    if tape.kernels.joint:
        both = linear(tape, "gate_up", x, 2 * F, bias=spec.up_bias, inner=True)
        return gated(tape, "", both.sliced(F), both.sliced(F), spec.activation)
    tape.fan_out("", x, 2)
    if tape.kernels.chains != "eager":
        gate = linear(tape, "gate", x, F, bias=spec.up_bias, inner=True)
        return gated(tape, "", gate, linear(tape, "up", x, F, bias=spec.up_bias, inner=True), spec.activation)
    gate = activation(tape, "", linear(tape, "gate", x, F, bias=spec.up_bias, inner=True), spec.activation)
    up = linear(tape, "up", x, F, bias=spec.up_bias, inner=True)
    return multiplied(tape, "", gate, up, "gate · up")
