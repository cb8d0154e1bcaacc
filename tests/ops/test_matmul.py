"""Matrix products, counted one multiply-add at a time."""

from hypothesis import given
from hypothesis import strategies as st

from torchledger import ops

small = st.integers(1, 6)
sizes = st.integers(1, 10**6)


@given(small, small, small, small)
def test_a_product_takes_two_flops_a_multiply_add(b, m, n, k):
    flops = sum(2 for _ in range(b) for _ in range(m) for _ in range(n) for _ in range(k))
    (piece,) = ops.matmul(b, m, n, k)
    assert piece.work.flops_full == piece.work.flops_exact == piece.work.flops_executed == flops


@given(sizes, sizes, sizes, sizes, st.sampled_from([2, 4]))
def test_each_operand_is_read_once_and_the_result_written_once(b, m, n, k, size):
    work = ops.matmul(b, m, n, k, element_bytes=size)[0].work
    assert work.bytes_read == size * (b * m * k + b * k * n)
    assert work.bytes_written == size * b * m * n


@given(sizes, sizes, sizes)
def test_the_three_products_of_a_linear_map_cost_the_same_flops(tokens, inputs, outputs):
    forward = ops.linear(tokens, inputs, outputs)[0]
    to_input, to_weight = (
        ops.linear_input_gradient(tokens, inputs, outputs)[0],
        ops.linear_weight_gradient(tokens, inputs, outputs)[0],
    )
    assert forward.work.flops_full == to_input.work.flops_full == to_weight.work.flops_full
    assert (forward.gradient_of, to_input.gradient_of, to_weight.gradient_of) == ("none", "input", "weight")


@given(sizes, sizes, sizes)
def test_the_gradients_have_the_sizes_of_what_they_are_gradients_of(tokens, inputs, outputs):
    to_input = dict(ops.linear_input_gradient(tokens, inputs, outputs)[0].shape)
    to_weight = dict(ops.linear_weight_gradient(tokens, inputs, outputs)[0].shape)
    assert (to_input["m"], to_input["n"], to_input["k"]) == (tokens, inputs, outputs)
    assert (to_weight["m"], to_weight["n"], to_weight["k"]) == (outputs, inputs, tokens)


@given(sizes, sizes)
def test_a_bias_is_one_add_an_output_and_its_gradient_a_sum_over_tokens(tokens, outputs):
    product, bias = ops.linear(tokens, 7, outputs, bias=True)
    assert (product.kind, bias.kind) == ("matmul", "pointwise")
    assert bias.work.flops_full == tokens * outputs
    (gradient,) = ops.bias_gradient(tokens, outputs)
    assert gradient.work.flops_full == (tokens - 1) * outputs
    assert gradient.gradient_of == "weight"
