"""The most that an unpriced operation could cost, against operations whose cost is known."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from torchledger.tracer.pricing.bound import most_it_could_cost
from torchledger.tracer.signature import Signature, TensorMeta

sizes = st.integers(1, 50)


def _most(*operands, results):
    metas = [TensorMeta(shape, (1,) * len(shape), torch.float32) for shape in (*operands, *results)]
    return most_it_could_cost(
        Signature("mylib.op.default", tuple(metas[: len(operands)])), tuple(metas[len(operands) :])
    )


@given(sizes, sizes, sizes)
def test_a_matrix_product_costs_exactly_the_most(m, k, n):
    assert _most((m, k), (k, n), results=[(m, n)]) == 2 * m * k * n


@given(sizes, sizes, sizes, sizes)
def test_a_batched_product_costs_no_more(b, m, k, n):
    assert _most((b, m, k), (b, k, n), results=[(b, m, n)]) >= 2 * b * m * k * n


@given(sizes, sizes, sizes)
def test_attention_costs_no_more(heads, tokens, size):
    """However long the sequence: its scores are no operand."""
    q = (2, heads, tokens, size)
    assert _most(q, q, q, results=[q]) >= 4 * 2 * heads * tokens**2 * size


def test_an_operation_without_tensors_costs_nothing():
    assert _most(results=[]) == 0
