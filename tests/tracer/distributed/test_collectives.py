"""Every collective is a line: how many ranks, how many bytes, and what this rank sends of them."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn

from torchledger.tracer import Recorder, trace_step
from torchledger.tracer.distributed import Group

N, ELEMENTS = 4, 24  # ranks, and fp32 elements of the tensor that a rank hands in
BYTES = 4 * ELEMENTS


class Calls(nn.Module):
    """One call, inside a module."""

    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, x):
        """The call's result, or what it has written into."""
        return self.call(x)


def _line(call, rank=1, elements=ELEMENTS):
    """The one collective of a call on rank 1 of 4, and what it sent over all ranks."""

    def step():
        Calls(call)(torch.empty(elements))

    lines = [
        [line for line in trace_step(step, world_size=N, rank=each).ledger.lines if line.kind == "collective"]
        for each in range(N)
    ]
    assert all(len(found) == 1 for found in lines)
    return lines[rank][0], sum(found[0].work.bytes_sent for found in lines)


def _empty(times):
    return torch.empty(ELEMENTS * times // N)


CASES = {
    "all_gather": (lambda x: dist.all_gather_single(_empty(N * N), x), 3 * BYTES, N * BYTES),
    "all_gather of a list": (lambda x: dist.all_gather([_empty(N) for _ in range(N)], x), 3 * BYTES, N * BYTES),
    "all_gather functional": (lambda x: functional.all_gather_single(x, 0, dist.group.WORLD), 3 * BYTES, N * BYTES),
    "reduce_scatter": (lambda x: dist.reduce_scatter_single(_empty(1), x), 3 * BYTES // N, BYTES),
    "reduce_scatter functional": (
        lambda x: functional.reduce_scatter_single(x, "sum", 0, dist.group.WORLD),
        3 * BYTES // N,
        BYTES,
    ),
    "all_reduce": (dist.all_reduce, 2 * 3 * BYTES // N, BYTES),
    "all_reduce functional": (lambda x: functional.all_reduce(x, "sum", dist.group.WORLD), 2 * 3 * BYTES // N, BYTES),
    "all_to_all": (lambda x: dist.all_to_all_single(torch.empty_like(x), x), 3 * BYTES // N, BYTES),
    "all_to_all functional": (
        lambda x: functional.all_to_all_single(x, None, None, dist.group.WORLD),
        3 * BYTES // N,
        BYTES,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_rank_sends_its_part(name):
    """By the ring: all but one of n chunks, twice for an all-reduce; every rank the same."""
    call, rank_sends, whole = CASES[name]
    line, all_send = _line(call)
    assert line.op == f"{name.split()[0]} (forward)"
    assert line.work.bytes_sent == rank_sends
    assert all_send == N * rank_sends
    assert dict(line.shape)["group"] == N
    assert dict(line.shape)["bytes"] == whole
    assert line.number_format == "fp32"


def test_a_broadcast_goes_around_the_ring():
    """From rank 2 over 3 and 0 to 1, which passes nothing on."""
    line, all_send = _line(lambda x: dist.broadcast(x, src=2))
    assert line.work.bytes_sent == 0
    assert all_send == (N - 1) * BYTES


@pytest.mark.parametrize(
    ("call", "all_ranks"),
    [
        (lambda x: dist.reduce(x, dst=0), 3 * BYTES),
        (lambda x: dist.scatter(_empty(1), list(x.chunk(N)) if dist.get_rank() == 0 else None, src=0), 3 * BYTES // N),
        (lambda x: dist.gather(x, [_empty(N) for _ in range(N)] if dist.get_rank() == 0 else None, dst=0), 3 * BYTES),
    ],
)
def test_what_a_root_gathers_or_scatters_travels_once(call, all_ranks):
    """Over all ranks n - 1 tensors or chunks are sent, whoever sends them."""
    assert _line(call)[1] == all_ranks


def test_uneven_parts_are_sent_row_by_row():
    """Of 24 rows this rank, number 1, keeps its 10 and sends 14."""
    line, _ = _line(lambda x: dist.all_to_all_single(torch.empty(40), x, [10, 10, 10, 10], [2, 10, 6, 6]))
    assert line.work.bytes_sent == 4 * (24 - 10)
    assert line.work.bytes_written == 4 * 40


def test_a_pair_of_ranks_sends_once():
    """A send is counted where it is made; the receive sends nothing."""
    sending = _line(lambda x: dist.send(x, dst=(dist.get_rank() + 1) % N))
    receiving = _line(lambda x: dist.recv(x, src=(dist.get_rank() - 1) % N))
    assert sending[1] == N * BYTES
    assert receiving[1] == 0


def test_a_tensor_that_the_ring_cannot_cut_is_averaged():
    """One fp32 number over 4 ranks: 2·3/4·4 bytes a rank."""
    line, _ = _line(dist.all_reduce, elements=1)
    assert line.work.bytes_sent == 2 * 3 * 4 / 4
    assert dict(line.shape)["bytes"] == 4


def test_a_call_that_does_not_wait_says_so():
    """`async_op=True` returns before the collective has ended, a plain call after."""
    asynchronous, _ = _line(lambda x: dist.all_reduce(x, async_op=True).wait())
    plain, _ = _line(dist.all_reduce)
    assert dict(asynchronous.shape)["asynchronous"] == 1
    assert dict(plain.shape)["asynchronous"] == 0


def test_waiting_costs_nothing_and_takes_no_memory():
    """A functional all-reduce makes one tensor; waiting for it makes none."""

    def step():
        x = torch.empty(ELEMENTS)
        functional.wait_tensor(functional.all_reduce(x, "sum", dist.group.WORLD))

    trace = trace_step(step, world_size=N, steps=1)
    assert [block.op for block in trace.timeline.blocks] == [
        "aten.empty.memory_format",
        "_c10d_functional.all_reduce.default",
    ]


def test_equal_calls_of_equal_groups_are_equal():
    """A signature holds a group's name, size and rank, no connection; calls through two handles of it are one line."""

    def step():
        x = torch.empty(ELEMENTS)
        for group in (None, dist.group.WORLD):
            dist.all_reduce(x, group=group)

    trace = trace_step(step, world_size=N, steps=1)
    (line,) = [line for line in trace.ledger.lines if line.kind == "collective"]
    assert line.times == 2
    group = trace.calls[-1].signature.bound()["process_group"]
    assert group == Group(group.name, N, 0)


def test_a_recorder_over_a_real_group_lets_it_work(tmp_path):
    """Over real tensors the collective itself runs: the sum of one rank is what it was."""
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        with Recorder() as recorder:
            x = torch.ones(3)
            dist.all_reduce(x)
            gathered = functional.all_gather_single(x, 0, dist.group.WORLD) + 0
        assert gathered.tolist() == [1.0, 1.0, 1.0]
        lines = [line for line in recorder.trace().ledger.lines if line.kind == "collective"]
        assert {line.op for line in lines} == {"all_reduce (forward)", "all_gather (forward)"}
        assert {line.work.bytes_sent for line in lines} == {0}
    finally:
        dist.destroy_process_group()
