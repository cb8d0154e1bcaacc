"""Optimizer steps: the update is run on counting numbers, and the kernels' operands are listed."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger import ops

elements = st.integers(1, 10**12)


class Counted:
    """A number that counts adds, multiplies and compares apart from roots and divisions."""

    def __init__(self, value, tally):
        self.value, self.tally = value, tally

    def _made(self, value, kind):
        self.tally[kind] = self.tally.get(kind, 0) + 1
        return Counted(value, self.tally)

    def __add__(self, other):
        return self._made(self.value + getattr(other, "value", other), "flops")

    def __sub__(self, other):
        return self._made(self.value - getattr(other, "value", other), "flops")

    def __mul__(self, other):
        return self._made(self.value * getattr(other, "value", other), "flops")

    __rmul__ = __mul__

    def __truediv__(self, other):
        return self._made(self.value / getattr(other, "value", other), "transcendentals")

    def root(self):
        """Its square root."""
        return self._made(math.sqrt(self.value), "transcendentals")


def _adamw(p, g, m, v, *, decays):
    """Loshchilov and Hutter, algorithm 2, as torch writes it; what depends on the step alone is a plain number."""
    p = p * (1 - 3e-4 * 0.1) if decays else p
    m = m + 0.1 * (g - m)
    v = v * 0.95 + 0.05 * (g * g)
    return p - 3e-4 * (m / (v.root() / 0.9 + 1e-8))


@pytest.mark.parametrize("decays", [True, False])
def test_adamw_takes_as_many_operations_an_element_as_its_update(decays):
    tally = {}
    _adamw(*(Counted(x, tally) for x in (1.0, 0.5, 0.1, 0.2)), decays=decays)
    work = ops.adamw(7, weight_decay=decays)[0].work
    assert work.flops_full == 7 * tally["flops"]
    assert work.transcendentals == 7 * tally["transcendentals"]


@given(elements, st.booleans())
def test_implementations_of_adamw_differ_in_bytes_and_not_in_flops(n, decays):
    fused, foreach, loop = (
        ops.adamw(n, weight_decay=decays, implementation=name)[0].work for name in ("fused", "foreach", "loop")
    )
    assert fused.flops_full == foreach.flops_full == loop.flops_full
    assert fused.bytes_moved == 4 * n * (4 + 3)  # p, g, m, v in; p, m, v out
    assert loop.bytes_moved == foreach.bytes_moved > fused.bytes_moved


def test_the_loop_reads_and_writes_what_its_kernels_do():
    kernels = {
        "p.mul_": (1, 1),
        "m.lerp_(g)": (2, 1),
        "v.mul_": (1, 1),
        "v.addcmul_(g, g)": (2, 1),
        "v.sqrt": (1, 1),
        "div": (1, 1),
        "add_": (1, 1),
        "p.addcdiv_(m, d)": (3, 1),
    }
    work = ops.adamw(1, implementation="loop", element_bytes=1)[0].work
    assert work.bytes_read == sum(reads for reads, _ in kernels.values())
    assert work.bytes_written == sum(writes for _, writes in kernels.values())


@pytest.mark.parametrize(
    ("momentum", "decay", "flops"), [(False, False, 2), (True, False, 4), (False, True, 4), (True, True, 6)]
)
def test_sgd_scales_and_subtracts_and_momentum_and_decay_take_two_more_each(momentum, decay, flops):
    for implementation in ("fused", "foreach", "loop"):
        (piece,) = ops.sgd(5, momentum=momentum, weight_decay=decay, implementation=implementation)
        assert piece.work.flops_full == 5 * flops
        assert piece.kind == "optimizer"


@given(st.lists(st.integers(1, 50), min_size=1, max_size=10))
def test_clipping_takes_the_norm_of_all_gradients_and_scales_them(sizes):
    norms = sum(n + (n - 1) for n in sizes)
    norm_of_norms = 2 * len(sizes) - 1
    scale = 1 + 1 + sum(sizes)  # + epsilon, a compare with 1, the products
    work = ops.clip_grad_norm(sum(sizes), len(sizes))[0].work
    assert work.flops_full == norms + norm_of_norms + scale
    assert work.transcendentals == len(sizes) + 1 + 1  # roots, the root of the whole, a division


def test_another_implementation_is_an_error():
    with pytest.raises(KeyError):
        ops.adamw(3, implementation="fuzzy")


def test_a_later_micro_batch_adds_its_gradient():
    (piece,) = ops.gradient_accumulation(6)
    assert (piece.work.flops_full, piece.work.bytes_moved) == (6, 4 * 3 * 6)
