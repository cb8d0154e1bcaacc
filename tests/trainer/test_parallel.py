import itertools

import pytest
import torch

from torchledger.trainer import interrupts, parallel


@pytest.mark.parametrize("size", [2, 3, 4])
def test_ranks_agree_on_the_weightiest_signal_that_any_has_got(size):
    """Whatever signals the ranks have got or not, hang-ups included, the sum of what they tell names the greatest."""
    heard = sorted(int(each) for each in interrupts._SIGNALS)
    for got in itertools.product([0, *heard], repeat=size):
        total = sum(parallel._digit(each, size) for each in got)
        assert parallel._number(total, size) == max(got)


def test_a_signal_of_all_of_many_ranks_is_no_greater_one():
    """Sums of 32-bit numbers keep signals of 1,024 ranks apart."""
    for signal in (1, 2, 15):
        total = torch.full((1024,), parallel._digit(signal, 1024)).sum().item()
        assert parallel._number(total, 1024) == signal
