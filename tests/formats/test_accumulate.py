import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchledger import formats
from torchledger.formats import FormatError, accumulate, accumulate_equal

NARROW = ["FP16", "BF16", "FP8_E4M3", "FP8_E5M2", "FP6_E3M2", "FP6_E2M3", "FP4_E2M1", "TF32"]


@pytest.mark.parametrize(
    ("name", "last"), [("bf16", 256), ("fp16", 2048), ("e4m3", 16), ("e5m2", 8), ("fp4", 4), ("fp32", 4096)]
)
def test_ones_stop_at_the_largest_counting_integer(name: str, last: int):
    """4,096 ones, one by one: n + 1 rounds back to n = 2^(mantissa bits + 1)."""
    made = accumulate_equal(1, 4096, name)
    assert made.value == last
    assert made.error == last - 4096
    assert made.stalled_after == (last if last < 4096 else None)


def test_pairs_and_a_wide_accumulator_lose_nothing_of_4096_ones():
    """All partial sums in pairs are powers of two; FP32 counts to 2^24."""
    assert accumulate_equal(1, 4096, "bf16", "pairwise").value == 4096
    assert accumulate_equal(1, 4096, "bf16", accumulator="fp32").value == 4096


def test_fp32_stops_counting_at_two_to_the_24():
    """A billion ones take a blink: sums of equal terms jump through each power of two."""
    made = accumulate_equal(1, 2**30, "fp32")
    assert (made.value, made.stalled_after) == (2.0**24, 2**24)


@pytest.mark.parametrize(("name", "dtype"), [("fp32", np.float32), ("fp16", np.float16)])
def test_one_by_one_is_what_numpy_does(name: str, dtype):
    """A loop over numpy's numbers of the format ends at the same bits."""
    terms = np.random.default_rng(1).standard_normal(400).astype(dtype)
    total = terms[0]
    for term in terms[1:]:
        total = dtype(total + term)
    assert accumulate(terms.astype(float).tolist(), name).value == float(total)


def test_one_by_one_is_what_pytorch_does_in_bf16():
    """Adding BF16 tensors rounds after each addition."""
    terms = torch.randn(300, generator=torch.Generator().manual_seed(1)).bfloat16()
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    assert accumulate(terms.tolist(), "bf16").value == total.item()


def test_in_pairs_is_what_numpy_does():
    """Halves are summed and added, in numpy's FP16."""

    def halves(terms):
        if len(terms) == 1:
            return terms[0]
        half = (len(terms) + 1) // 2
        return np.float16(halves(terms[:half]) + halves(terms[half:]))

    terms = np.random.default_rng(2).standard_normal(301).astype(np.float16)
    assert accumulate(terms.astype(float).tolist(), "fp16", "pairwise").value == float(halves(terms))


@settings(max_examples=60, deadline=None)
@given(
    term=st.sampled_from([1, 0.1, 1 / 3, 0.75, 3, -0.3, 5.5, 0.0, 2.0**-9, 70.0, 60000.0]),
    count=st.integers(1, 900),
    name=st.sampled_from(NARROW),
    order=st.sampled_from(["sequential", "pairwise"]),
    accumulator=st.sampled_from([None, "fp32", "fp16"]),
    rounding=st.sampled_from(["nearest-even", "nearest-away", "toward-zero", "up", "down"]),
)
def test_equal_terms_jump_to_where_single_steps_lead(*, term, count, name, order, accumulator, rounding):
    """The shortcut for equal terms gives what adding them one by one gives, the bound included."""
    fast = accumulate_equal(term, count, name, order, accumulator=accumulator, rounding=rounding)
    slow = accumulate([term] * count, name, order, accumulator=accumulator, rounding=rounding)
    assert fast.value == pytest.approx(slow.value, rel=0, abs=0, nan_ok=True)
    assert (fast.exact, fast.bound) == (slow.exact, slow.bound)


@settings(max_examples=80, deadline=None)
@given(
    terms=st.lists(st.floats(-4, 4), min_size=1, max_size=60),
    name=st.sampled_from(NARROW),
    order=st.sampled_from(["sequential", "pairwise"]),
    accumulator=st.sampled_from([None, "fp32"]),
    rounding=st.sampled_from(["nearest-even", "toward-zero", "up"]),
)
def test_no_error_is_beyond_its_bound(terms, name, order, accumulator, rounding):
    """Whatever is summed, and however."""
    made = accumulate(terms, name, order, accumulator=accumulator, rounding=rounding)
    if made.bound is not None:
        assert abs(made.error) <= made.bound


def test_the_bounds_by_hand():
    """Ones in BF16, u = 2^-8: 4,095·u one by one, (1 + u)^12 - 1 in pairs; 4,095·2^-24 and one rounding from FP32."""
    unit = Fraction(1, 2**8)
    assert accumulate_equal(1, 4096, "bf16").bound == 4096 * 4095 * unit
    assert accumulate_equal(1, 4096, "bf16", "pairwise").bound == 4096 * ((1 + unit) ** 12 - 1)
    inside = 4096 * Fraction(4095, 2**24)
    assert accumulate_equal(1, 4096, "bf16", accumulator="fp32").bound == inside + (4096 + inside) * unit
    # rounded down, u is epsilon: gamma(3) = 3u / (1 - 3u)
    assert accumulate_equal(1, 4, "bf16", rounding="down").bound == 4 * (3 * 2 * unit) / (1 - 3 * 2 * unit)
    assert accumulate_equal(1, 4096, "bf16", rounding="down").bound is None


def test_the_rounding_of_the_terms_is_in_error_and_bound():
    """0.1 is 205/2048 in BF16 (1.6015625 · 2^-4): one term is wrong by the difference, and the bound is that."""
    made = accumulate_equal(Fraction(1, 10), 1, "bf16")
    assert made.error == made.bound == Fraction(205, 2048) - Fraction(1, 10)


def test_beyond_the_largest_number_theory_says_nothing():
    """60,000 twice is infinity in FP16 and 448 twice is cut in E4M3: no bound."""
    assert accumulate_equal(60000, 2, "fp16").value == math.inf
    assert accumulate_equal(60000, 2, "fp16").error is None
    assert accumulate_equal(448, 2, "e4m3").value == 448
    assert accumulate_equal(448, 2, "e4m3").bound is None


def test_stochastic_sums_move_on():
    """256 + 1 in BF16 rounds to 258 with the random number 0.4 and stays with 0.6: half of a step of 2."""
    ones = [256.0, 1.0]
    assert accumulate(ones, "bf16", rounding="stochastic", randoms=[0.4]).value == 258
    assert accumulate(ones, "bf16", rounding="stochastic", randoms=[0.6]).value == 256
    with pytest.raises(FormatError, match="ran out"):
        accumulate([1.0] * 3, "bf16", rounding="stochastic", randoms=[0.5])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: accumulate([], "fp16"), "from 1 to 1,048,576 terms, got 0"),
        (lambda: accumulate([math.nan], "fp16"), "finite number, not nan"),
        (lambda: accumulate_equal(math.inf, 2, "fp16"), "finite number, not inf"),
        (lambda: accumulate_equal(1, 0, "fp16"), "at least 1 term, not 0"),
        (lambda: accumulate_equal(1, 2, "fp16", rounding="stochastic"), "depends on its random numbers"),
        (lambda: accumulate_equal(1, 2, "int8"), "INT8 is an integer format"),
    ],
)
def test_what_cannot_be_summed(call, message: str):
    """Nothing, what is no number, and sums that chance decides."""
    with pytest.raises(FormatError, match=message):
        call()


@pytest.mark.parametrize("name", NARROW)
def test_a_sum_that_stalls_says_when(name: str):
    """One term more or less changes nothing after the term that is named, and did before it."""
    made = accumulate_equal(1, 10**6, name)
    assert made.stalled_after is not None
    at = made.stalled_after
    assert formats.accumulate_equal(1, at, name).value == formats.accumulate_equal(1, at + 1, name).value == made.value
    assert formats.accumulate_equal(1, at - 1, name).value != made.value


def test_no_bound_where_the_accumulator_holds_not_every_term():
    """2^-31 is a number of TF32 and below half of FP16's smallest: 482 of them are lost, whatever epsilon says."""
    lost = formats.accumulate_equal(Fraction(1, 2**31), 482, "tf32", "pairwise", accumulator="fp16")
    assert (lost.value, lost.bound) == (0.0, None)
    assert formats.accumulate_equal(Fraction(1, 2**31), 482, "tf32", accumulator="fp32").bound is not None
    assert formats.accumulate([1, 2], "fp32", accumulator="bf16").bound is None
