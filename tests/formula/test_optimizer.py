"""The optimizer's phase: each trained number once, decay on matrices, state by kind."""

import pytest

from torchledger.formula.optimizer import is_decayed, optimizer_lines, state_bytes, trained
from torchledger.formula.parameters import Parameter
from torchledger.spec import OptimizerSpec

PARAMETERS = (
    Parameter("embedding.weight", (100, 8)),
    Parameter("position_embedding.weight", (16, 8)),
    Parameter("layers.*.mlp.up.weight", (32, 8), times=3),
    Parameter("layers.*.mlp.up.bias", (32,), times=3),
    Parameter("layers.*.mlp.router.bias", (4,), times=3, trainable=False),
    Parameter("head.weight", (100, 8), tied_to="embedding.weight"),
)
MATRICES, REST = 100 * 8 + 3 * 32 * 8, 16 * 8 + 3 * 32


def test_a_tied_head_and_a_router_bias_are_not_moved():
    assert [each.name for each in trained(PARAMETERS)] == [each.name for each in PARAMETERS[:4]]


def test_matrices_decay_and_biases_and_positions_do_not():
    assert [is_decayed(each) for each in trained(PARAMETERS)] == [True, False, True, False]


def test_adamw_takes_eleven_operations_on_a_decayed_number_and_ten_on_another():
    lines = [line for line in optimizer_lines(PARAMETERS, OptimizerSpec()) if line.op == "adamw"]
    assert [line.work.flops_full for line in lines] == [11 * MATRICES, 10 * REST]
    plain = [line for line in optimizer_lines(PARAMETERS, OptimizerSpec(weight_decay=0)) if line.op == "adamw"]
    assert sum(line.work.flops_full for line in plain) == 10 * (MATRICES + REST)


def test_clipping_reads_every_gradient_and_is_left_out_at_zero():
    (clip,) = [line for line in optimizer_lines(PARAMETERS, OptimizerSpec()) if line.op == "clip_grad_norm"]
    tensors = 1 + 1 + 3 + 3
    assert clip.work.flops_full == 3 * (MATRICES + REST) - tensors + (2 * tensors - 1) + 2
    assert "clip_grad_norm" not in {line.op for line in optimizer_lines(PARAMETERS, OptimizerSpec(gradient_clip=0))}


def test_every_line_is_the_steps_own_in_the_optimizer_phase():
    for line in optimizer_lines(PARAMETERS, OptimizerSpec()):
        assert (line.module, line.phase, line.kind) == ("", "optimizer", "optimizer")


@pytest.mark.parametrize(
    ("optimizer", "num_bytes"),
    [
        (OptimizerSpec(), 8 * (MATRICES + REST) + 4 * 8),
        (OptimizerSpec(kind="sgd"), 0),
        (OptimizerSpec(kind="sgd", momentum=0.9), 4 * (MATRICES + REST)),
    ],
)
def test_adamw_keeps_two_moments_and_a_count_a_tensor_and_sgd_its_momentum(optimizer, num_bytes):
    assert state_bytes(PARAMETERS, optimizer) == num_bytes


def test_sgd_costs_by_momentum_and_decay():
    lines = list(optimizer_lines(PARAMETERS, OptimizerSpec(kind="sgd", momentum=0.9, gradient_clip=0)))
    assert [line.work.flops_full for line in lines] == [6 * MATRICES, 4 * REST]


MATRIX, TABLE, VECTOR = (
    Parameter("layers.*.mlp.up.weight", (64, 128), times=3),
    Parameter("embedding.weight", (100, 64)),
    Parameter("final_norm.weight", (64,)),
)
MODEL = (MATRIX, TABLE, VECTOR)
N_MATRIX, N_TABLE, N_VECTOR = 3 * 64 * 128, 100 * 64, 64


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("lion", 4 * (N_MATRIX + N_TABLE + N_VECTOR)),
        ("muon", 4 * N_MATRIX + 8 * (N_TABLE + N_VECTOR) + 4 * 2),
        ("adafactor", 4 * (3 * (64 + 128) + (100 + 64) + 64) + 4 * 5),
        # 4 bytes of scale for every 2048 elements, and of step count a tensor; 64 elements are too few for 8 bit
        ("adamw-8bit", 3 * 2 * (8192 + 4 * 4) + 2 * (6400 + 4 * 4) + 8 * 64 + 4 * 5),
    ],
)
def test_state_of_the_other_kinds(kind, expected):
    assert state_bytes(MODEL, OptimizerSpec(kind)) == expected


def _moved(precision, kind="adamw"):
    spec = OptimizerSpec(kind, gradient_clip=0.0)
    return sum(line.work.bytes_moved for line in optimizer_lines((MATRIX,), spec, precision)) / N_MATRIX


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ("fp32", 4 * (4 + 3)),  # p, g, m, v in; p, m, v out
        ("bf16", 4 * (4 + 3)),
        ("bf16-master", 2 + 3 * 4 + 3 * 4 + 2),  # g in 16 bit, master, m, v in and out, the weight out
        ("bf16-moments", 2 + 2 + 2 * 4 + 2 + 2 * 4),
        ("bf16-pure", 2 * (4 + 3)),
    ],
)
def test_bytes_that_the_step_moves_an_element(precision, expected):
    assert _moved(precision) == expected


def test_fp16_unscales_first():
    ops = [line.op for line in optimizer_lines(MODEL, OptimizerSpec(), "fp16")]
    assert ops == ["unscale", "update_scale", "clip_grad_norm", "adamw", "adamw"]


def test_muon_orthogonalizes_matrices_of_layers_and_leaves_the_rest_to_adamw():
    lines = list(optimizer_lines(MODEL, OptimizerSpec("muon", gradient_clip=0.0)))
    assert [line.op for line in lines] == ["muon", "newton_schulz", "adamw", "adamw"]
    assert [dict(line.shape).get("elements") for line in lines] == [N_MATRIX, None, N_TABLE, N_VECTOR]
    assert dict(lines[1].shape) == {"b": 3, "m": 128, "n": 64, "k": 64}
