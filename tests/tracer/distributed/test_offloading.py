"""FSDP's offloading to the host: what leaves the device, and which copies it costs."""

import pytest
from distributed_steps import MIXED, Sizes, fsdp
from torch.distributed.fsdp import CPUOffloadPolicy

from torchledger.tracer import trace_step

SIZES = Sizes()


@pytest.fixture(scope="module")
def trace():
    """Four ranks on CUDA, parameters, gradients and optimizer on the host."""
    options = {"mp_policy": MIXED, "offload_policy": CPUOffloadPolicy()}
    return trace_step(fsdp(SIZES, (4,), **options), world_size=4, target="cuda")


def test_the_rank_keeps_its_share_on_the_host(trace):
    """Between steps nothing of parameters or state is on the device."""
    live = [block for block in trace.timeline.blocks if block.freed is None]
    shares = [
        block for block in live if block.part in {"parameters", "optimizer state"} and "gathered" not in block.name
    ]
    assert {block.on_host for block in shares} == {True}
    assert sum(b.num_bytes for b in shares if b.part == "parameters") == 4 * SIZES.parameters // 4


def test_reduced_gradients_are_copied_to_the_host(trace):
    """A copy a parameter, of its share in fp32; the reduced buffer itself is freed on the device."""
    copies = [
        block
        for block in trace.timeline.blocks
        if block.part == "gradients" and block.on_host and block.allocated >= trace.step_events
    ]
    assert sum(block.num_bytes for block in copies) == 4 * SIZES.parameters // 4
    assert len(copies) == 9 * SIZES.layers + 3


def test_shares_are_copied_to_the_device_before_they_are_cast(trace):
    """For every gathering a share comes over in fp32, and a bf16 copy of it is made there."""
    share = SIZES.hidden * SIZES.hidden // 4
    copies = [
        block.num_bytes
        for block in trace.timeline.blocks
        if block.allocated >= trace.step_events and block.module == "layers.1" and block.shape == (share,)
    ]
    assert copies == [4 * share, 2 * share] * 4 * 2  # four square matrices, forward and backward


def test_without_offloading_everything_is_on_the_device():
    """The same step without the policy holds its shares on the device."""
    trace = trace_step(fsdp(SIZES, (4,), mp_policy=MIXED), world_size=4, target="cuda")
    assert not any(block.on_host for block in trace.timeline.blocks if block.part in {"parameters", "gradients"})
