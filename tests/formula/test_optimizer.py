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
