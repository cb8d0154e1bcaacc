import pytest

from torchledger import ops


def test_adamw_as_one_kernel_is_adamw():
    """The same arithmetic as `adamw`, decay or not."""
    for decay in (False, True):
        fused = ops.fused_adam(10, weight_decay=decay, decoupled=True)[0].work
        assert fused == ops.adamw(10, weight_decay=decay)[0].work


@pytest.mark.parametrize(
    ("option", "flops", "divisions"), [("weight_decay", 2, 0), ("amsgrad", 1, 0), ("scaled", 0, 1)]
)
def test_each_option_costs_its_own(option, flops, divisions):
    """Decay g + wd·p 2, amsgrad a compare, unscaling a division."""
    plain, with_option = ops.fused_adam(10)[0].work, ops.fused_adam(10, **{option: True})[0].work
    assert with_option.flops_full - plain.flops_full == 10 * flops
    assert with_option.transcendentals - plain.transcendentals == 10 * divisions


def test_adagrad_counts_what_its_formula_does(counted):
    """S + g·g, p - lr·g/(√s + ε)."""
    p, g, s = counted.numbers(3)
    s = s + g * g
    _ = p - (0.1 * g) / (s.sqrt() + 1e-10)
    work = ops.fused_adagrad(1)[0].work
    assert (work.flops_full, work.transcendentals) == counted.taken()


def test_unscaling_is_a_compare_and_a_product():
    assert ops.unscale(10)[0].work.flops_full == 20
    assert ops.update_scale()[0].kind == "optimizer"
