"""A traced rank against real ranks that talk to each other, and against torch's own tracker of FSDP memory."""

from dataclasses import replace

import torch
import torch.multiprocessing
from distributed_steps import MIXED, fsdp
from real_ranks import N, collectives, measured_rank, replicated, sharded
from small_llama import Llama, Sizes, data, loss_of
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from torchledger.tracer import ranks, trace_step


def _traced(build, rank):
    """The same rank traced: most bytes allocated in its fourth step over those before it, and its collectives.

    Inside a gather or a reduce-scatter gloo holds a copy of the whole tensor for itself, an all-reduce works in place.
    """
    trace = trace_step(build, world_size=N, rank=rank, steps=4)
    timeline, begin = trace.timeline, trace.step_events
    own = replace(timeline, blocks=tuple(block for block in timeline.blocks if block.allocated >= begin))
    curve = own.curve()
    copies = [
        curve[timeline.call_positions[index]] + max(meta.num_bytes for meta in call.signature.tensors())
        for index, call in enumerate(trace.calls[trace.first_call :], trace.first_call)
        if call.signature.op in {"c10d._reduce_scatter_base_.default", "c10d._allgather_base_.default"}
    ]
    return max(*curve, *copies), curve[-1], collectives(trace)


def _measured(build, folder):
    """What each of two real ranks allocated and sent, in the shape of `_traced`."""
    torch.multiprocessing.spawn(measured_rank, (build, str(folder)), nprocs=N)
    return [tuple(torch.load(f"{folder}/{rank}", weights_only=False)) for rank in range(N)]


def test_real_ranks_of_fsdp_allocate_and_send_as_traced(tmp_path):
    """Two processes over gloo: peak of a step to the byte, and the same collectives, on both ranks."""
    assert [_traced(sharded, rank) for rank in range(N)] == _measured(sharded, tmp_path)


def test_real_ranks_of_ddp_allocate_and_send_as_traced(tmp_path):
    """Two processes over gloo: peak of a step to the byte, and the same collectives, on both ranks."""
    assert [_traced(replicated, rank) for rank in range(N)] == _measured(replicated, tmp_path)


def test_the_peak_of_fsdp_is_that_of_torchs_own_tracker():
    """Total, shares and gathered parameters, buffers and optimizer state at the peak, to the byte."""
    sizes, size = Sizes(), 4
    with ranks(size), FakeTensorMode():
        mesh = init_device_mesh("cpu", (size,))
        model = Llama(sizes)
        for layer in model.layers:
            fully_shard(layer, mesh=mesh, mp_policy=MIXED)
        fully_shard(model, mesh=mesh, mp_policy=MIXED)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        tokens, labels = data(sizes, 2, 16)
        tracker = FSDPMemTracker(model, optimizer)
        tracker.track_inputs((tokens, labels))
        with tracker:
            for number in range(2):
                loss_of(model(tokens), labels).backward()
                optimizer.step()
                optimizer.zero_grad()
                if number == 0:
                    tracker.reset_mod_stats()
        (theirs,) = tracker.get_tracker_snapshot("peak").values()
    found = {str(kind).rpartition(".")[2]: num_bytes for kind, num_bytes in theirs.items()}
    peak = trace_step(fsdp(sizes, (size,), mp_policy=MIXED), world_size=size).peak()
    ours = peak.by_part()
    assert peak.peak_bytes == found["Total"]
    assert ours["parameters"] == found["SHARDED_PARAM"] + found["UNSHARDED_PARAM"]
    assert ours["communication"] == found["ALL_GATHER"] + found["REDUCE_SCATTER"]
    assert ours["optimizer state"] == found["OPT"]
