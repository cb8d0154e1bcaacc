import math

import pytest
import torch

from torchledger.auditor.precision_census import FORMATS, beyond, count, merged
from torchledger.formats import encode, get

TORCH = {
    "FP64": torch.float64,
    "FP32": torch.float32,
    "FP16": torch.float16,
    "BF16": torch.bfloat16,
    "FP8_E5M2": torch.float8_e5m2,
    "FP8_E4M3": torch.float8_e4m3fn,
}


def drawn(scale, number_format="FP32"):
    """Numbers of every sort: ordinary ones, zeros of both signs, infinities, NaN, and powers of two where ties are."""
    torch.manual_seed(1)
    some = torch.randn(1000, dtype=torch.float64) * scale
    ties = [2.0**-25, -(2.0**-25), 2.0**-24, 2.0**-14, 65504.0, 65519.0, 65520.0, 464.0, 465.0, 61440.0, 2.0**-10]
    special = [0.0, -0.0, math.inf, -math.inf, math.nan]
    return torch.cat([some, torch.tensor([*ties, *special], dtype=torch.float64)]).to(TORCH[number_format])


@pytest.mark.parametrize("number_format", TORCH)
@pytest.mark.parametrize("scale", [1e-40, 1e-6, 1.0, 1e5])
def test_a_census_counts_every_number_once_at_its_exponent(number_format, scale):
    """Zeros, infinities, NaN and the exponents together are all elements, each exponent as frexp gives it."""
    tensor = drawn(scale, number_format)
    census, values = count(tensor), tensor.double()
    numbers = values[torch.isfinite(values) & (values != 0)]
    exponents = (torch.frexp(numbers)[1] - 1).tolist()
    assert census.counts == {e: exponents.count(e) for e in sorted(set(exponents))}
    powers = (torch.frexp(numbers)[1] - 1)[torch.frexp(numbers)[0].abs() == 0.5].tolist()
    assert census.powers == {e: powers.count(e) for e in sorted(set(powers))}
    assert (census.zeros, census.infinities, census.nans) == (
        int((values == 0).sum()), int(values.isinf().sum()), int(values.isnan().sum())
    )  # fmt: skip
    assert census.elements == tensor.numel() == census.numbers + census.zeros + census.infinities + census.nans
    assert census.largest == numbers.abs().max().item()
    assert census.subnormals == int((numbers.abs() < get(number_format).smallest_normal).sum())


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("scale", [1e-40, 1e-8, 1e-3, 1.0, 1e5])
def test_what_a_format_loses_is_what_rounding_each_number_to_it_loses(name, scale):
    """The counts are those of encoding every number by itself with the exact encoder."""
    values = drawn(scale)
    numbers = [x for x in values.tolist() if math.isfinite(x) and x != 0]
    limit = get(name).smallest_normal
    encoded = [(abs(x), encode(x, name)) for x in numbers]
    lost = count(values).lost(name)
    assert lost.to_zero == sum(made.value == 0 for _, made in encoded)
    assert lost.subnormal == sum(x < limit and made.value != 0 for x, made in encoded)
    assert lost.overflow == sum(made.overflow for _, made in encoded)
    assert lost.of == len(numbers)


@pytest.mark.parametrize("shift", [-7, 3, 16])
def test_a_power_of_two_only_shifts_the_counts(shift):
    """What FP16 loses of numbers times 2^k is what it loses of the numbers multiplied."""
    values = torch.randn(5000, generator=torch.Generator().manual_seed(3)) * 1e-6
    shifted, multiplied = count(values).lost("FP16", shift=shift), count(values * 2.0**shift).lost("FP16")
    assert (shifted.to_zero, shifted.subnormal) == (multiplied.to_zero, multiplied.subnormal)


def test_the_largest_scale_is_the_last_one_without_an_infinity():
    """FP16 ends at 65,504: 3 · 2^14 = 49,152 fits and 3 · 2^15 does not; 65,519 still rounds to it, 65,520 does not."""
    for largest, shift in ((3.0, 14), (65519.0, 0), (65520.0, -1), (1e-8, 42)):
        census = count(torch.tensor([largest, -1e-9]))
        assert census.largest_shift("FP16") == shift
        assert torch.isfinite(torch.tensor(largest * 2.0**shift, dtype=torch.float64).to(torch.float16))
        assert torch.isinf(torch.tensor(largest * 2.0 ** (shift + 1), dtype=torch.float64).to(torch.float16))
    assert count(torch.zeros(3)).largest_shift("FP16") is None


def test_beyond_a_format_begins_half_a_step_above_its_largest():
    """FP16: 65,504 + 32/2, a tie that goes up. E4M3: 448 + 32/2, a tie that stays."""
    assert beyond(get("FP16")) == (65504 + 16, True)
    assert beyond(get("FP8_E4M3")) == (448 + 16, False)


def test_censuses_add_up():
    """One census of two tensors is that of both in one."""
    one, other = drawn(1e-6), drawn(10.0)
    assert merged((count(one), count(other))) == count(torch.cat([one, other]))


def test_strided_and_empty_tensors_are_counted():
    """A transposed view counts as its copy; nothing counts as nothing."""
    tensor = torch.arange(12.0).reshape(3, 4).T
    assert count(tensor) == count(tensor.contiguous())
    assert count(torch.empty(0)).elements == 0
    assert count(torch.tensor([3.0]).to_sparse()) == count(torch.tensor([3.0]))
