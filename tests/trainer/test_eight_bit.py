import pytest
import torch

from torchledger.trainer.eight_bit import AdamW8Bit, decoded, encode, table
from torchledger.trainer.update_rules import AdamW


def coded(values, *, signed):
    codes = torch.empty(len(values), dtype=torch.uint8)
    scales = torch.empty(-(-len(values) // 2048))
    encode(values.clone(), codes, scales, signed=signed)
    return codes, scales


def test_the_table_is_symmetric_or_all_positive():
    """Signed values mirror each other but for 1, which has no -1; unsigned begin at 0; the largest is 1."""
    signed, unsigned = table(signed=True), table(signed=False)
    assert {-value for value in signed if value < 0} == {value for value in signed if 0 < value < 1}
    assert (min(unsigned), max(unsigned), max(signed)) == (0.0, 1.0, 1.0)


@pytest.mark.parametrize("elements", [4096, 5000, 2047])
@pytest.mark.parametrize("signed", [True, False])
def test_numbers_come_back_within_their_digits(elements, signed):
    """In the largest decade neighbours are 0.9/64 (or 0.9/128) of a block's largest apart: half of that is lost."""
    values = torch.randn(elements, generator=torch.Generator().manual_seed(0))
    values = values if signed else values.abs()
    codes, scales = coded(values, signed=signed)
    back = decoded(codes, scales, signed=signed)
    block = scales.repeat_interleave(2048)[:elements]
    assert torch.all((back - values).abs() <= block * (0.9 / (64 if signed else 128) / 2 + 1e-6) * 1.01)
    assert torch.equal(scales, torch.stack([part.abs().max() for part in values.split(2048)]))


def test_a_block_of_zeros_stays_zero():
    codes, scales = coded(torch.zeros(2048), signed=True)
    assert torch.equal(decoded(codes, scales, signed=True), torch.zeros(2048))


def test_what_is_decoded_is_encoded_to_the_same_codes():
    """A code stands for itself where the table has the block's largest: squares, whose largest is 1, do not drift."""
    codes, scales = coded(torch.randn(4096, generator=torch.Generator().manual_seed(0)).square(), signed=False)
    again, same = coded(decoded(codes, scales, signed=False), signed=False)
    assert torch.equal(scales, same)
    assert torch.equal(codes, again)


@pytest.mark.parametrize(("shape", "tolerance"), [((80, 80), 0.35), ((60, 60), 1e-6)])
def test_updates_are_near_adamws_and_the_same_for_small_tensors(shape, tolerance):
    """After five updates of rate 0.01 weights differ by less than a third of one; below 4,096 elements by rounding."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(shape, generator=generator)
    gradients = [torch.randn(shape, generator=generator) for _ in range(5)]
    found = []
    for rule in (AdamW8Bit(0.9, 0.95, 1e-8), AdamW(0.9, 0.95, 1e-8, fused=False, foreach=False)):
        parameter = start.clone()
        state = rule.initial_state(parameter, torch.float32)
        for gradient in gradients:
            rule.update(parameter, gradient, state, 0.01, 0.1)
        found.append(parameter)
    difference = (found[0] - found[1]).abs()
    assert difference.mean() <= 0.01 * tolerance


def test_a_square_that_is_small_is_not_rounded_to_nothing():
    """Beside the largest of its block it is the table's least above 0, so that no mean is divided by ε; 0 stays 0."""
    squares = torch.tensor([1.0, 1e-12, 0.0])
    codes, scales = torch.empty(3, dtype=torch.uint8), torch.empty(1)
    encode(squares, codes, scales, signed=False)
    largest, small, nothing = decoded(codes, scales, signed=False).tolist()
    assert largest == 1
    assert small == pytest.approx(min(value for value in table(signed=False) if value > 0))
    assert nothing == 0
