"""Bytes per parameter of a stack, and what a process takes beside tensors."""

import dataclasses

import pytest

from torchledger.machine import get
from torchledger.planner.memory_state import overhead, state_rule, usable_bytes
from torchledger.planner.stack import stack, stacks


@pytest.mark.parametrize(
    ("name", "precision", "level", "held"),
    [
        ("fsdp2", "bf16", 3, (4, 2, 4, 0, 8)),  # FP32 shards, gathered in BF16
        ("fsdp2", "bf16", 0, (4, 4, 4, 0, 8)),  # nothing is gathered: autocast
        ("fsdp2", "bf16-master", 3, (4, 2, 4, 0, 8)),  # the shards are the master copy
        ("fsdp2", "fp32", 3, (4, 4, 4, 0, 8)),
        ("fsdp2", "bf16-pure", 3, (2, 2, 2, 0, 4)),
        ("megatron", "bf16", 1, (2, 2, 4, 4, 8)),
        ("megatron", "fp8", 1, (2, 2, 4, 4, 8)),
        ("megatron-fsdp", "bf16", 3, (2, 2, 2, 4, 8)),  # gradients in the weights' format
        ("deepspeed", "bf16", 2, (2, 2, 2, 4, 8)),
        ("torchledger", "fp32", 0, (4, 4, 4, 0, 8)),
    ],
)
def test_bytes_per_parameter(name, precision, level, held):
    """Weights, what layers compute with, gradients, master copy and moments of a stack under a precision."""
    rule = state_rule(stack(name), precision, "adamw", False, level)
    assert (rule.weight, rule.computed, rule.gradient, rule.master, rule.moments) == held


@pytest.mark.parametrize(
    ("name", "precision", "held"),
    [
        ("megatron-fsdp", "bf16", (2, 2, 2)),
        ("megatron-fsdp", "fp8", (2, 1, 1)),  # --fp8-param-gather
        ("megatron-fsdp", "mxfp8", (2, 2, 1)),  # kept by rows and by columns, one of them is gathered
        ("megatron", "fp8", (2, 2, 2)),
        ("fsdp2", "fp8", (4, 4, 2)),  # FP32 shards, gathered in BF16
    ],
)
def test_weights_of_layers_may_be_kept_and_gathered_in_their_products_format(name, precision, held):
    """Bytes of an end's weight, of a layer's between two steps and as it is gathered."""
    rule = state_rule(stack(name), precision, "adamw", False, 3)
    assert (rule.weight, rule.layer_weight, rule.gathered) == held


def test_momentum_is_a_moment():
    """SGD keeps 4 bytes with momentum and none without."""
    rules = [state_rule(stack("fsdp2"), "fp32", "sgd", has, 0).moments for has in (False, True)]
    assert rules == [0, 4]


@pytest.mark.parametrize("name", stacks())
def test_every_stack_has_an_overhead(name):
    """A process takes a context and buffers, each known; a stack without CUDA's allocator takes none of NCCL's."""
    found = overhead(stack(name))
    assert all(each >= 0 for each in found)
    if stack(name).allocator == "cuda":
        assert 0 < found.network < found.pair < found.group < found.context
        assert 0 < found.hole_share <= 1


def test_what_a_process_may_use():
    """Of the 81,920 MiB that an A100's driver reports a process has 79.25 GiB; where only the sale is known, that."""
    assert usable_bytes(get("a100-80gb")) == 81920 * 2**20 - 3 * 2**28
    sold = dataclasses.replace(get("a100-80gb"), memory_bytes_reported=None)
    assert usable_bytes(sold) == 80 * 10**9
    assert usable_bytes(dataclasses.replace(sold, memory_bytes_nominal=None)) is None
