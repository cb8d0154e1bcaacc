"""One rank of a run is set up, and taken down again."""

import os

import pytest
import torch
import torch.distributed as dist
from distributed_steps import Sizes, fsdp
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from torchledger.tracer import TraceError, ranks, trace_step


def test_a_rank_finds_what_torchrun_would_give():
    """Inside, the world is set up and in the environment; local ranks count within a host."""
    with ranks(16, 11, ranks_per_host=8):
        assert (dist.get_world_size(), dist.get_rank()) == (16, 11)
        assert [os.environ[name] for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK")] == ["16", "11", "3"]
        dist.init_process_group("nccl")  # the user's own code sets up what is there
        dist.destroy_process_group()
        assert dist.is_initialized()


def test_nothing_is_left_behind():
    """Process group, environment and torch's own functions are as they were, also after an error."""
    before = (dict(os.environ), dist.init_process_group, DeviceMesh.__init__, torch.cpu.Stream, torch.cpu.stream)
    with pytest.raises(KeyError), ranks(4):
        raise KeyError
    trace_step(fsdp(Sizes(layers=1), (4,)), world_size=4, target="cuda")
    after = (dict(os.environ), dist.init_process_group, DeviceMesh.__init__, torch.cpu.Stream, torch.cpu.stream)
    assert before == after
    assert not dist.is_initialized()


def test_a_process_group_that_is_there_is_refused():
    """Collectives of a real group would be called, so nothing begins."""
    with ranks(2), pytest.raises(TraceError, match="a process group is there already"), ranks(2):
        pass


@pytest.mark.parametrize(("world_size", "rank"), [(4, 4), (4, -1), (0, 0)])
def test_a_rank_that_there_is_not_is_refused(world_size, rank):
    """Ranks are 0 to n - 1."""
    with pytest.raises(TraceError, match="there is no rank"):
        trace_step(lambda: None, world_size=world_size, rank=rank)


def test_a_mesh_of_a_tensor_made_in_the_step_is_refused():
    """A traced tensor has no numbers of ranks in it; a list has."""

    def step():
        DeviceMesh("cuda", [0, 1])
        DeviceMesh("cuda", torch.arange(2))

    with pytest.raises(TraceError, match="Give it a list"):
        trace_step(step, world_size=2)


def test_one_rank_knows_nothing_of_another_that_was_traced_before():
    """7 rows over 3 ranks are 3, 3 and 1, whichever rank is asked first: torch's caches go by mesh."""

    def build():
        mesh = init_device_mesh("cuda", (3,))
        weight = nn.Parameter(distribute_tensor(torch.randn(7, 5), mesh, [Shard(0)]))

        def step():
            (weight * 2).redistribute(mesh, [Replicate()]).to_local().sum().backward()
            weight.grad = None

        return step

    for rank, rows in ((2, 1), (0, 3), (1, 3)):
        trace = trace_step(build, world_size=3, rank=rank)
        products = [call.signature.tensors()[0].shape for call in trace.calls if call.signature.op == "aten.mul.Tensor"]
        assert set(products) == {(rows, 5)}


def test_all_ranks_together_do_what_one_does_so_often():
    """4 ranks of data parallel: the ledger of all is 4 times that of one, and says so; a single process is one rank."""

    def step():
        model = torch.nn.Linear(8, 4)
        return lambda: model(torch.zeros(2, 8)).sum().backward()

    trace = trace_step(step, world_size=4, rank=1)
    assert (trace.rank, trace.world_size) == (1, 4)
    assert trace.ledger.flops == 2 * (2 * 2 * 8 * 4)  # forward and weight gradient
    assert trace.all_ranks.flops == 4 * trace.ledger.flops
    assert trace.all_ranks.assumptions[-1] == "all 4 ranks do what rank 1 does"
    alone = trace_step(step)
    assert (alone.rank, alone.world_size, alone.all_ranks) == (0, 1, alone.ledger)
