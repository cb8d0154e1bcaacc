"""A traced rank against real ranks that talk to each other, and against torch's own tracker of FSDP memory."""

from dataclasses import replace

import torch
import torch.distributed as dist
import torch.multiprocessing
from distributed_steps import MIXED, fsdp
from small_llama import Llama, Sizes, data, loss_of
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from torchledger.meter.allocator import allocations
from torchledger.tracer import Recorder, ranks, trace_step

N = 2


def _layers():
    return nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 33))


def _sharded():
    """A step of FSDP2, whose last layer's 33 rows are 17 and 16."""
    mesh = init_device_mesh("cpu", (N,))
    model = _layers()
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh, mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float64))
    fully_shard(model, mesh=mesh)
    return _step(model, torch.optim.AdamW(model.parameters(), foreach=False))


def _replicated():
    """A step of DDP."""
    model = DistributedDataParallel(_layers())
    return _step(model, torch.optim.SGD(model.parameters(), 0.1, foreach=False))


def _step(model, optimizer):
    x = torch.randn(8, 64)

    def step():
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _rank(rank, build, folder):
    """One real rank: the allocator's peak of a step, and the collectives that a recorder sees in another."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", N), rank=rank, world_size=N)
    step = build()
    for _ in range(3):
        step()
    measured = allocations(step)
    with Recorder() as recorder:
        step()
    torch.save((measured.peak_bytes, measured.end_bytes, _collectives(recorder.trace())), f"{folder}/{rank}")
    dist.destroy_process_group()


def _collectives(trace):
    return sorted(
        (line.op, line.shape, line.number_format, line.times)
        for line in trace.ledger.lines
        if line.kind == "collective"
    )


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
    return max(*curve, *copies), curve[-1], _collectives(trace)


def _compare(build, folder):
    torch.multiprocessing.spawn(_rank, (build, str(folder)), nprocs=N)
    for rank in range(N):
        peak, end, collectives = torch.load(f"{folder}/{rank}", weights_only=False)
        assert _traced(build, rank) == (peak, end, collectives)


def test_real_ranks_of_fsdp_allocate_and_send_as_traced(tmp_path):
    """Two processes over gloo: peak of a step to the byte, and the same collectives, on both ranks."""
    _compare(_sharded, tmp_path)


def test_real_ranks_of_ddp_allocate_and_send_as_traced(tmp_path):
    """Two processes over gloo: peak of a step to the byte, and the same collectives, on both ranks."""
    _compare(_replicated, tmp_path)


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
