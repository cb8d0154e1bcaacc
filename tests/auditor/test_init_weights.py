import pytest
import torch

from torchledger.auditor.init_weights import sample_of, values_of


def _drawn(rows=64, columns=32, dtype=torch.float32):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_copied_rows_and_columns_are_counted_bit_for_bit(dtype):
    """Rows 3 and 9 as row 1, and row 20 as row 10, are three copies in two groups; columns are counted apart."""
    weight = _drawn(dtype=dtype)
    assert values_of(weight).rows.copies == values_of(weight).columns.copies == 0
    weight[3] = weight[9] = weight[1]
    weight[20] = weight[10]
    values = values_of(weight)
    assert values.rows.copies == 3
    assert sorted(map(sorted, values.rows.groups)) == [[1, 3, 9], [10, 20]]
    assert values.columns.copies == 0
    assert values_of(weight.t()).columns.copies == 3


def test_a_difference_in_the_last_bit_is_a_difference():
    """What differs by one unit in the last place of one value is no copy."""
    weight = _drawn()
    weight[3] = weight[1]
    weight[3, 7] = torch.nextafter(weight[3, 7], torch.tensor(9.0))
    assert values_of(weight).rows.copies == 0


def test_rows_of_zeros_and_of_one_value_are_no_copies_of_each_other():
    """Zeros and constants are counted apart."""
    weight = _drawn()
    weight[5:8] = 0
    weight[8:10] = 0.25
    rows = values_of(weight).rows
    assert (rows.zeros, rows.constants, rows.copies) == (3, 2, 0)
    assert values_of(torch.zeros(4, 4)).is_zero
    assert not values_of(weight).is_zero


def test_pieces_find_what_lies_far_apart():
    """Copies are found across the pieces in which a large matrix is looked at."""
    weight = torch.randn(3000, 3000, generator=torch.Generator().manual_seed(0))
    weight[2999] = weight[0]
    weight[:, 2998] = weight[:, 1]
    weight[2999, 2998], weight[0, 2998] = weight[0, 1], weight[0, 1]
    values = values_of(weight)
    assert (values.rows.groups, values.columns.groups) == (((0, 2999),), ((1, 2998),))


def test_copies_by_chance_are_not_told():
    """Single values of 16 bit coincide by themselves: a column of them says nothing."""
    weight = torch.randn(4096, 1, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert len(set(weight.flatten().tolist())) < 4096
    assert values_of(weight).rows.copies == 0


def test_orthogonal_rows_are_seen_and_random_ones_are_not():
    """nn.init.orthogonal_ gives rows (or columns) upright on one another, of one length."""
    generator = torch.Generator().manual_seed(0)
    for shape in ((64, 128), (128, 64)):
        assert values_of(torch.nn.init.orthogonal_(torch.empty(shape), gain=1.4, generator=generator)).is_orthogonal
        assert not values_of(torch.randn(shape, generator=generator)).is_orthogonal


def test_equal_weights_have_equal_fingerprints():
    """The number of a whole matrix is the same for a clone of it and another for anything else."""
    weight = _drawn()
    assert values_of(weight).fingerprint == values_of(weight.clone()).fingerprint
    assert values_of(weight).fingerprint != values_of(weight.flip(0)).fingerprint


def test_a_sample_has_the_moments_of_what_it_is_of():
    """Mean, spread, kurtosis and reach of five values, by hand: 2, 2, 2, 2, 7 have mean 3 and variance 20/5."""
    sample = sample_of(torch.tensor([2.0, 2, 2, 2, 7]))
    assert (sample.count, sample.mean, sample.std, sample.largest) == (5, 3.0, 2.0, 7.0)
    assert sample.kurtosis == pytest.approx((4 * 1 + 4**4) / 5 / 4**2)


def test_infinite_values_are_told():
    """A matrix with an infinity or a NaN is not finite."""
    for bad in (float("inf"), float("nan")):
        weight = _drawn()
        weight[2, 2] = bad
        assert not values_of(weight).is_finite
