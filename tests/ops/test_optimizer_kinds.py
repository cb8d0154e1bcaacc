"""Optimizer steps counted from their formulas, and by doing one of them."""

import pytest

from torchledger import ops


def test_lion_counts_what_its_formula_does(counted):
    """Sign of β1·m + (1 - β1)·g, p·(1 - lr·wd) - lr·sign, β2·m + (1 - β2)·g; a sign is 3 operations."""
    p, g, m = counted.numbers(3)
    _ = m * 0.9 + g * 0.1
    _ = p * 0.999 - p * 0.001
    _ = m * 0.99 + g * 0.01
    assert ops.lion(1)[0].work.flops_full == counted.taken()[0] + 3


def test_a_newton_schulz_iteration_is_three_products():
    """X Xᵀ and B X of 2·n²·m, A² of 2·n³; b·A + c·A² and a·X + B X element by element (Moonlight, equation 2)."""
    n, m = 6, 10
    products = 2 * n * n * m + 2 * n * n * n + 2 * n * n * m
    work = ops.newton_schulz(n, m, iterations=1)[0].work
    assert work.flops_full == products + 3 * n * n + 2 * n * m
    assert ops.newton_schulz(n, m)[0].work.flops_full == 5 * work.flops_full
    assert ops.newton_schulz(n, m, times=4)[0].work == ops.newton_schulz(n, m)[0].work * 4


def test_orthogonalization_is_no_model_work():
    """Its products are of the optimizer, so that MFU never sees them."""
    (piece,) = ops.newton_schulz(4, 4)
    assert piece.kind == "linalg"


@pytest.mark.parametrize("rule", [ops.lion, ops.muon, ops.adamw_8bit])
def test_decay_is_one_product_an_element(rule):
    with_decay, without = rule(10)[0].work, rule(10, weight_decay=False)[0].work
    assert with_decay.flops_full - without.flops_full == 10


def test_eight_bit_moments_move_two_bytes_an_element_each_way():
    """P and g in, p out, 4 bytes each; two moments in and out, a byte each."""
    work = ops.adamw_8bit(10)[0].work
    assert work.bytes_moved == 10 * (3 * 4 + 2 * 2)


def test_adafactor_has_no_moments_to_move_but_many_kernels():
    work = ops.adafactor(2, 5)[0].work
    assert (work.bytes_read, work.bytes_written) == (4 * 12 * 10, 4 * 7 * 10)
