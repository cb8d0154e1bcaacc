"""A mixture of experts: the router, copies of tokens, loads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.formula.mixture import _loads, mixture
from torchledger.formula.tape import Tape
from torchledger.spec import MlpSpec, MoeSpec

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


MOE = MoeSpec(5, 2, 10)


def test_experts_share_the_copies_of_all_tokens_and_the_router_reads_each_token_once():
    tape, kept = _walked(lambda tape, x: mixture(tape, x, MlpSpec(F), MOE))
    assert _matmuls(tape) == {"mlp.router": 2 * N * D * 5} | dict.fromkeys(
        ("mlp.experts.*.gate", "mlp.experts.*.up", "mlp.experts.*.down"), 2 * (N * 2) * D * 10
    )
    assert kept["mlp.token copies"] == 4 * (2 * N) * D
    assert kept["mlp.token copies: index"] == kept["mlp.expert outputs by token: index"] == 8 * (2 * N)


def test_every_expert_is_entered_once():
    tape, _ = _walked(lambda tape, x: mixture(tape, x, MlpSpec(F), MOE))
    ups = [line for line in tape.lines() if line.module == "mlp.experts.*.up" and line.op == "matmul"]
    assert sum(line.times for line in ups if line.phase == "forward") == MOE.num_experts


@pytest.mark.parametrize("normalize", [True, False])
def test_weights_that_are_normalized_keep_their_sum(normalize):
    moe = MoeSpec(5, 2, 10, normalize_weights=normalize)
    _, kept = _walked(lambda tape, x: mixture(tape, x, MlpSpec(F), moe))
    assert ("mlp.router.sum of weights" in kept) == normalize
    assert kept["mlp.router.scores"] == 4 * N * 5


def test_a_shared_expert_sees_every_token_and_its_gate_has_one_output():
    moe = MoeSpec(5, 2, 10, shared_intermediate_size=12, shared_gate=True)
    tape, kept = _walked(lambda tape, x: mixture(tape, x, MlpSpec(F), moe))
    assert _matmuls(tape)["mlp.shared.up"] == 2 * N * D * 12
    assert _matmuls(tape)["mlp.shared_gate"] == 2 * N * D * 1
    assert kept["mlp.shared gate"] == 4 * N


@given(st.integers(0, 10**6), st.integers(1, 300))
def test_loads_are_whole_differ_by_at_most_one_and_reach_every_expert(copies, experts):
    loads = _loads(copies, MoeSpec(experts, 1, 8))
    assert sum(load * count for load, count in loads) == copies
    assert sum(count for _, count in loads) == experts
    assert max(load for load, _ in loads) - min(load for load, _ in loads) <= 1
