"""Steps of two real ranks over gloo, and what each measures: a file that a spawned process finds."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from torchledger.cli.torchrun import leave
from torchledger.meter.allocator import allocations
from torchledger.tracer import Recorder

N = 2


def _layers():
    return nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 33))


def sharded():
    """A step of FSDP2, whose last layer's 33 rows are 17 and 16."""
    mesh = init_device_mesh("cpu", (N,))
    model = _layers()
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh, mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float64))
    fully_shard(model, mesh=mesh)
    return _step(model, torch.optim.AdamW(model.parameters(), foreach=False))


def replicated():
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


def measured_rank(rank, build, folder):
    """One real rank: the allocator's peak of a step, and the collectives that a recorder sees in another."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", N), rank=rank, world_size=N)
    step = build()
    for _ in range(3):
        step()
    # gloo lets go of its copies in threads of its own: late on a busy machine, and then they meet what follows.
    measured = min((allocations(step) for _ in range(8)), key=lambda each: each.peak_bytes)
    with Recorder() as recorder:
        step()
    torch.save((measured.peak_bytes, measured.end_bytes, collectives(recorder.trace())), f"{folder}/{rank}")
    dist.destroy_process_group()
    leave(0)


def collectives(trace):
    """The collectives of a trace, with how often each ran."""
    return sorted(
        (line.op, line.shape, line.number_format, line.times)
        for line in trace.ledger.lines
        if line.kind == "collective"
    )
