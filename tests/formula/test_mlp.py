"""The feed-forward part: dense and gated."""

from torchledger.formula.mlp import mlp
from torchledger.formula.tape import Tape
from torchledger.spec import MlpSpec

B, T, D, F = 2, 6, 8, 20
N = B * T


def _walked(walk):
    tape = Tape("fp32")
    x = tape.make("x", (B, T, D), "fp32")
    assert walk(tape, x).shape == (B, T, D)
    return tape, {each.name: each.total_bytes for each in tape.activations()}


def _matmuls(tape):
    totals = {}
    for line in tape.lines():
        if (line.kind, line.phase) == ("matmul", "forward"):
            totals[line.module] = totals.get(line.module, 0) + line.total.flops_full
    return totals


def test_a_gated_mlp_has_three_maps_and_keeps_four_inner_tensors():
    tape, kept = _walked(lambda tape, x: mlp(tape, "mlp", x, MlpSpec(F)))
    assert _matmuls(tape) == dict.fromkeys(("mlp.gate", "mlp.up", "mlp.down"), 2 * N * D * F)
    inner = 4 * N * F
    assert kept == {
        "x": 4 * N * D,
        "mlp.gate: output": inner,
        "mlp.silu output": inner,
        "mlp.up: output": inner,
        "mlp.gate · up": inner,
    }


def test_a_plain_mlp_has_two_maps_and_keeps_two():
    tape, kept = _walked(lambda tape, x: mlp(tape, "mlp", x, MlpSpec(F, "plain", "gelu")))
    assert set(_matmuls(tape)) == {"mlp.up", "mlp.down"}
    assert kept == {"x": 4 * N * D, "mlp.up: output": 4 * N * F, "mlp.gelu output": 4 * N * F}
