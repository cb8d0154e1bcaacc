"""Seconds of an interleaved step in closed form, for chunks that are equal but for the model's first and last one.

The paths are those of `schedule_closed`. Here a path may also go round: through one chunk on all ranks and on to the
next chunk on the first one.
"""

from __future__ import annotations

from typing import NamedTuple

from torchledger.planner.schedule_cost import StageCosts


class Shape(NamedTuple):
    """Numbers of a step; `group` is `schedule_order.micro_batch_group`."""

    num_stages: int
    num_chunks: int
    num_micro_batches: int
    group: int


class Passes(NamedTuple):
    """Seconds of a pass of one kind through the first chunk of the model, one in the middle, and the last."""

    first: float
    middle: float
    last: float


def even_chunks(costs: StageCosts) -> tuple[Passes, Passes] | None:
    """Forward and backward passes if all chunks but the first and the last of the model are equal."""
    first, middle, last = costs[0][0], costs[0][1], costs[-1][-1]
    inner = (middle,) * len(costs[0])
    if costs[0][1:] != inner[1:] or costs[-1][:-1] != inner[1:] or any(rank != inner for rank in costs[1:-1]):
        return None
    forward = Passes(first.forward_s, middle.forward_s, last.forward_s)
    backward = Passes(*(each.backward_s + each.weight_s for each in (first, middle, last)))
    return forward, backward


def interleaved_s(forward: Passes, backward: Passes, shape: Shape, send_s: float) -> float:
    """Interleaved 1F1B with two or more groups of micro-batches, sends no longer than a forward pass.

    The path enters rank `s` after going through all chunks of the first micro-batch, or after waiting in a chunk for a
    whole group of them, whichever takes longer in each chunk. With equal chunks the bubble is (p - 1)(f + b) of a
    chunk, a share of (p - 1) / (v m) (arXiv:2104.04473, section 2.2.2). Sends are hidden in the steady state; what
    shows is the way of the first micro-batch in and of the last one out: 2 (v p - 1) sends where groups are the stages.

    Exact for equal chunks. With up to two layers more in the last chunk and up to a tenth more in the first one, at
    most 1.7 % and in the mean 0.03 % short; with up to a fifth more in the first one, 2.5 % and 0.1 %.

    Args:
        forward: seconds of forward passes through chunks.
        backward: seconds of backward passes, both gradients.
        shape: stages p, chunks v (two or more), micro-batches m and their group.
        send_s: seconds from rank to rank.

    >>> equal = Passes(1, 1, 1), Passes(2, 2, 2)
    >>> interleaved_s(*equal, Shape(4, 2, 8, 4), 0) == 2 * 8 * (1 + 2) + (4 - 1) * (1 + 2)
    True
    """
    num_stages, num_chunks, num_micro_batches, group = shape
    enter = _gains(forward, backward, shape, group, send_s)
    leave = _gains(backward, forward, shape, num_micro_batches % group or group, send_s)
    total_s = 0.0
    for rank, gain_s in enter.items():
        busy_s = num_chunks * (forward.middle + backward.middle)
        if rank == 0:
            busy_s += forward.first + backward.first - forward.middle - backward.middle
        if rank == num_stages - 1:
            busy_s += forward.last + backward.last - forward.middle - backward.middle
        total_s = max(total_s, num_micro_batches * busy_s + gain_s + leave[rank])
    return total_s


def _gains(forward: Passes, backward: Passes, shape: Shape, group: int, send_s: float) -> dict[int, float]:
    """What entering late gains on the ranks where it can be most: 0, 1 and the last two.

    `group` is the size of the first group of micro-batches. Leaving enters the last one, backwards in time.
    """
    first, middle, last = forward
    num_stages, num_chunks = shape.num_stages, shape.num_chunks
    groups = (group, shape.group)
    end, hop_s = num_stages - 1, middle + send_s
    onward_s = first + (num_chunks - 2) * max(group * middle, num_stages * hop_s)
    once_s = end * middle + num_stages * send_s
    gains: dict[int, float] = {}
    best_s = 0.0
    for rank in sorted({end, end - 1, 1, 0} if end > 1 else {end, 0}, reverse=True):
        wait_s = max(once_s, (group - 1) * first, (group - 1) * middle if rank else 0.0)
        there_s = onward_s + wait_s + rank * hop_s
        passes = 2 * (end - rank) + (num_chunks - 1) * shape.group + 1
        own_s = passes * middle
        waited_s = (passes - (num_chunks - 1) * group) * middle
        if rank == 0:
            more = _passes_of_chunk(0, passes, num_chunks, groups)
            own_s += more * (first - middle)
            waited_s += (more - group) * (first - middle)
        if rank == end:
            more = _passes_of_chunk(num_chunks - 1, passes, num_chunks, groups)
            own_s += more * (last - middle)
            waited_s += more * (last - middle)
        back_s = rank * (backward.middle + send_s) + (backward.last if rank == end else backward.middle)
        best_s = max(best_s, there_s + waited_s + back_s)
        gains[rank] = best_s - back_s - own_s
    return gains


def _passes_of_chunk(chunk: int, passes: int, num_chunks: int, groups: tuple[int, int]) -> int:
    """How many of the first passes of a rank go through a chunk."""
    first, later = groups
    found = min(max(passes - chunk * first, 0), first)
    passes -= num_chunks * first
    if passes > 0:
        rounds, passes = divmod(passes, num_chunks * later)
        found += rounds * later + min(max(passes - chunk * later, 0), later)
    return found
