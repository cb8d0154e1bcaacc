import pytest
import torch

from torchledger.trainer.one_by_one import MASTER, OneByOne
from torchledger.trainer.update_rules import Sgd


def group(parameter, rate):
    return [{"params": [parameter], "rule": Sgd(0.0), "lr": rate, "weight_decay": 0.0, "scale": 1.0}]


@pytest.mark.parametrize("has_master", [True, False])
def test_a_master_copy_gathers_what_sixteen_bits_lose(has_master):
    """From 1 in BF16 (last digit 2⁻⁷) 64 steps of 2⁻¹⁰ come to 1 + 2⁻⁴ with a master copy, and nowhere without."""
    parameter = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    masters = {parameter: torch.ones(3)} if has_master else None
    optimizer = OneByOne(group(parameter, 2.0**-10), moment=torch.float32, masters=masters)
    for _ in range(64):
        parameter.grad = -torch.ones(3, dtype=torch.bfloat16)
        optimizer.step()
    assert parameter.tolist() == [1 + 2.0**-4 if has_master else 1.0] * 3
    assert (MASTER in optimizer.state[parameter]) == has_master


def test_parameters_without_gradients_stay():
    parameter = torch.nn.Parameter(torch.ones(3))
    OneByOne(group(parameter, 1.0), moment=torch.float32).step()
    assert parameter.tolist() == [1.0] * 3
