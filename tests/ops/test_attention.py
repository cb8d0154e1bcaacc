"""Attention: full, exact and executed, by formula and pair by pair."""

from hypothesis import given
from hypothesis import strategies as st

from torchledger import ops

sizes = (st.integers(1, 8), st.integers(1, 40), st.integers(1, 40), st.integers(1, 16), st.integers(1, 16))


@given(st.integers(1, 60), st.integers(0, 80))
def test_causal_pairs_are_those_a_token_and_the_ones_before_it_in_the_window_make(queries, window):
    pairs = sum(1 for i in range(queries) for j in range(i + 1) if window == 0 or i - j < window)
    assert ops.causal_pairs(queries, window) == pairs
    assert isinstance(ops.causal_pairs(queries, window), int)


@given(*sizes)
def test_math_attention_takes_two_products_over_the_whole_square(batch, T, S, d, v):
    scores, values = ops.attention_math(batch, T, S, d, v)
    assert scores.work.flops_full == sum(2 * d for _ in range(batch) for _ in range(T) for _ in range(S))
    assert values.work.flops_full == 2 * batch * T * S * v
    assert scores.work.bytes_written == values.work.bytes_read - 4 * batch * S * v == 4 * batch * T * S


@given(*sizes)
def test_the_backward_pass_costs_twice_the_forward(batch, T, S, d, v):
    forward = sum(piece.work.flops_full for piece in ops.attention_math(batch, T, S, d, v))
    backward = ops.attention_math_backward(batch, T, S, d, v)
    assert sum(piece.work.flops_full for piece in backward) == 2 * forward
    assert {piece.gradient_of for piece in backward} == {"input"}


@given(*sizes)
def test_each_backward_product_is_as_large_as_its_shape_says(batch, T, S, d, v):
    for piece in (*ops.attention_math(batch, T, S, d, v), *ops.attention_math_backward(batch, T, S, d, v)):
        shape = dict(piece.shape)
        assert piece.work.flops_full == 2 * shape["b"] * shape["m"] * shape["n"] * shape["k"]


@given(st.tuples(*sizes), st.data())
def test_one_fused_kernel_counts_what_its_products_do(sizes, data):
    batch, T, S, d, v = sizes
    pairs = data.draw(st.integers(1, T * S))
    for fused, apart in (
        (ops.attention_fused, ops.attention_math),
        (ops.attention_fused_backward, ops.attention_math_backward),
    ):
        one = [p for p in fused(batch, T, S, d, v, pairs=pairs) if p.kind == "attention"]
        many = apart(batch, T, S, d, v, pairs=pairs)
        assert len(one) == 1
        assert one[0].work.flops_full == sum(p.work.flops_full for p in many)
        assert one[0].work.flops_exact == sum(p.work.flops_exact for p in many)


@given(*sizes)
def test_the_fused_backward_kernel_makes_the_scores_again_and_only_executed_flops_show_it(batch, T, S, d, v):
    work = ops.attention_fused_backward(batch, T, S, d, v)[0].work
    assert work.flops_executed - work.flops_full == 2 * batch * T * S * d
    forward = ops.attention_fused(batch, T, S, d, v)[0].work
    assert forward.flops_executed == forward.flops_full


@given(*sizes)
def test_the_fused_backward_kernel_makes_the_weights_again_a_difference_and_an_exponential_a_pair(batch, T, S, d, v):
    rows = ops.attention_fused_backward(batch, T, S, d, v)[1].work
    assert rows.flops_full == rows.flops_exact == batch * T * (4 * S - 1)  # of the softmax's gradient alone
    assert rows.flops_executed - rows.flops_full == batch * T * S
    assert rows.transcendentals == batch * T * S


@given(st.tuples(*sizes), st.data())
def test_executed_pairs_change_executed_flops_alone(sizes, data):
    batch, T, S, d, v = sizes
    pairs = data.draw(st.integers(1, T * S))
    for rule in (ops.attention_fused, ops.attention_fused_backward):
        plain, blocks = rule(batch, T, S, d, v)[0].work, rule(batch, T, S, d, v, executed_pairs=pairs)[0].work
        assert (plain.flops_full, plain.flops_exact) == (blocks.flops_full, blocks.flops_exact)
        assert blocks.flops_executed * T * S == plain.flops_executed * pairs


@given(*sizes)
def test_the_fused_kernel_moves_no_scores(batch, T, S, d, v):
    kernel, softmax = ops.attention_fused(batch, T, S, d, v, element_bytes=2)
    assert kernel.work.bytes_read == 2 * batch * (T * d + S * d + S * v)
    assert kernel.work.bytes_written == 2 * batch * T * v + 4 * batch * T
    assert softmax.work.bytes_moved == 0
    assert softmax.kind == "reduction"


def test_shared_key_value_heads_are_read_once():
    whole, shared = ops.attention_fused(8, 4, 4, 2, 2)[0], ops.attention_fused(8, 4, 4, 2, 2, key_value_batch=2)[0]
    assert whole.work.bytes_read - shared.work.bytes_read == 4 * (8 - 2) * 4 * (2 + 2)
