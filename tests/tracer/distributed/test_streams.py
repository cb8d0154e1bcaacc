"""FSDP's own streams under a CUDA target: where each of its buffers is allocated."""

import pytest
import torch
from distributed_steps import MIXED, Sizes, fsdp

from torchledger.tracer import trace_step
from torchledger.tracer.distributed.streams import Stream, Streams
from torchledger.tracer.storages import Storages


def _streams(trace, name):
    """Streams of the step's communication buffers of a size, by what FSDP's source says they are."""
    begin = trace.step_events
    return {
        block.stream
        for block in trace.timeline.blocks
        if block.allocated >= begin and block.module == "layers.1" and block.num_bytes == name
    }


@pytest.fixture(scope="module")
def trace():
    """Two layers over four ranks, on CUDA."""
    return trace_step(fsdp(Sizes(), (4,), mp_policy=MIXED), world_size=4, target="cuda")


def test_gathered_and_reduced_buffers_stand_on_their_streams(trace):
    """Copy-in and gathered whole on the copy-in stream, input of the reduction on the default one, its result apart.

    `foreach_all_gather` allocates under `all_gather_copy_in_stream`; `foreach_reduce` its input before, and its output
    under, `reduce_scatter_stream` (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py).
    """
    layer = Sizes().layer_parameters
    assert _streams(trace, 2 * layer // 4) == {"all gather copy in"}
    assert _streams(trace, 2 * layer) == {"all gather copy in"}
    assert _streams(trace, 4 * layer) == {""}
    assert _streams(trace, 4 * layer // 4) == {"reduce scatter"}


def test_everything_else_stands_on_the_default_stream(trace):
    """Parameters, activations and optimizer state are allocated where they are used."""
    parts = {block.part for block in trace.timeline.blocks if block.stream}
    assert parts == {"communication", "gradients"}


def test_on_the_cpu_there_is_one_stream():
    """Torch's streams of the CPU are no streams."""
    trace = trace_step(fsdp(Sizes(), (4,), mp_policy=MIXED), world_size=4)
    assert {block.stream for block in trace.timeline.blocks} == {""}


def test_a_stream_is_current_while_it_is_on():
    """Streams nest, nothing stands for the one that is on, and waiting is nothing."""
    storages = Storages()
    streams, side = Streams(storages), Stream(name="side")
    with streams.stream(side):
        assert streams.current_stream() is side
        with streams.stream(None):
            assert storages.stream == "side"
        side.wait_event(side.record_event())
        side.wait_stream(streams.current_stream())
        side.synchronize()
    assert storages.stream == ""
    assert isinstance(side.record_event(), torch.cpu.Event)
    assert Stream().name != Stream().name
