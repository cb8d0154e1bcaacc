"""What a pipeline schedule costs: seconds, bubble, exposed sends, micro-batches in flight. What it refuses, and why.

The order of each rank's pieces stands in `schedule_order`; `simulation` runs it event by event, exact and slow. Here
are the answers that a search can afford: closed forms where they are exact or nearly so (`schedule_closed`,
`schedule_interleaved`), the recurrence of the pieces elsewhere (`schedule_recurrence`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

from torchledger.planner.schedule_closed import Run, gpipe_s, one_by_one_s, runs_of, zero_bubble_s
from torchledger.planner.schedule_cost import PipelineTime, StageCosts
from torchledger.planner.schedule_interleaved import Shape, even_chunks, interleaved_s
from torchledger.planner.schedule_order import (
    MicroBatchGroups,
    interleaved_warm_up,
    micro_batch_group,
    runs_in_groups,
)
from torchledger.planner.schedule_recurrence import recurrence_s
from torchledger.spec.strategy import Schedule

#: What interleaved schedules run, before the number of stages.
_GROUPS: dict[MicroBatchGroups, str] = {
    "stages": "a multiple of",
    "equal": "equal groups of at least",
    "any": "at least",
}
#: How much longer than a middle chunk the first one may be for the closed form of `interleaved`.
_FIRST_CHUNK = 1.2


def pipeline_time(schedule: Schedule, costs: StageCosts, num_micro_batches: int, send_s: float = 0.0) -> PipelineTime:
    """Seconds of a step's forward and backward passes.

    Sends run beside computing, one at a time per link and direction; what they add to the longest path is exposed.

    Args:
        schedule: which one; `schedule_refusals` has nothing against it.
        costs: per rank, per chunk: one chunk for `gpipe`, `1f1b` and `zero-bubble`, two for `dualpipe` (`parts`).
        num_micro_batches: of a step.
        send_s: seconds that activations or their gradients of one micro-batch take from rank to rank.

    Returns:
        Equal to the simulation's or, within bounds that the functions named below state, shorter:
        `schedule_closed.gpipe_s`, `.one_by_one_s`, `.zero_bubble_s`, `schedule_interleaved.interleaved_s`,
        `schedule_recurrence.recurrence_s` (`dualpipe`; uneven chunks; `zero-bubble` with m <= p).

    >>> from torchledger.planner.schedule_cost import ChunkCost
    >>> time = pipeline_time("1f1b", ((ChunkCost(1, 1, 1),),) * 4, 8)
    >>> time.bubble_s[0] / time.busy_s[0] == (4 - 1) / 8
    True
    """
    num_stages, num_chunks = len(costs), len(costs[0])
    if num_chunks == 1:
        runs = runs_of(costs)
        busy = [num_micro_batches * sum(cost) for _, cost, size in runs for _ in range(size)]
    else:
        each_way = runs_of_chunk(schedule, num_stages, num_micro_batches)
        busy = [each_way * sum(map(sum, chunks)) for chunks in costs]
    if num_stages == 1:
        return PipelineTime(busy[0], (busy[0],), (0.0,), 0.0)
    assert num_chunks == {"interleaved": num_chunks, "dualpipe": 2}.get(schedule, 1), f"{num_chunks} chunks, {schedule}"
    if schedule in _CLOSED and (num_micro_batches > num_stages or schedule != "zero-bubble"):
        step_s = partial(_CLOSED[schedule], runs, num_micro_batches)
    elif schedule == "interleaved":
        step_s = partial(_interleaved_s, costs, num_micro_batches)
    else:
        step_s = partial(recurrence_s, schedule, costs, num_micro_batches)
    total_s = max(step_s(0.0), *busy)
    exposed_s = max(0.0, step_s(send_s) - total_s) if send_s else 0.0
    return PipelineTime(total_s + exposed_s, tuple(busy), tuple([total_s - each for each in busy]), exposed_s)


#: Closed forms of one chunk per rank; that of `zero-bubble` wants more micro-batches than ranks.
_CLOSED: dict[str, Callable[[Sequence[Run], int, float], float]] = {
    "gpipe": gpipe_s,
    "1f1b": one_by_one_s,
    "zero-bubble": zero_bubble_s,
}


def _interleaved_s(costs: StageCosts, num_micro_batches: int, send_s: float) -> float:
    num_stages, num_chunks = len(costs), len(costs[0])
    group = micro_batch_group(num_stages, num_micro_batches)
    even = even_chunks(costs) if num_chunks > 1 and num_micro_batches >= 2 * group else None
    if even is not None:
        forward, backward = even
        if (
            send_s <= forward.middle
            and forward.first <= _FIRST_CHUNK * forward.middle
            and backward.first <= _FIRST_CHUNK * backward.middle
        ):
            shape = Shape(num_stages, num_chunks, num_micro_batches, group)
            return interleaved_s(forward, backward, shape, send_s)
    return recurrence_s("interleaved", costs, num_micro_batches, send_s)


def parts(schedule: Schedule, num_stages: int, virtual_stages: int) -> tuple[tuple[int, ...], ...]:
    """Parts of the model that each rank holds, one per chunk: 0 begins with the embedding, the last ends with the head.

    `interleaved` gives rank r parts r, r + p, r + 2 p ...; `dualpipe` cuts the model into p parts and holds each twice:
    rank r has part r for micro-batches that enter at rank 0, and p - 1 - r for those from the other end.

    >>> parts("interleaved", 2, 2), parts("dualpipe", 4, 1)
    (((0, 2), (1, 3)), ((0, 3), (1, 2), (2, 1), (3, 0)))
    """
    ranks = range(num_stages)
    if schedule == "dualpipe" and num_stages > 1:
        return tuple((rank, num_stages - 1 - rank) for rank in ranks)
    return tuple(tuple(rank + chunk * num_stages for chunk in range(virtual_stages)) for rank in ranks)


def runs_of_chunk(schedule: Schedule, num_stages: int, num_micro_batches: int) -> float:
    """Micro-batches that each chunk of a rank runs in a step: all, or with `dualpipe` the half that comes from its end.

    >>> runs_of_chunk("interleaved", 4, 8), runs_of_chunk("dualpipe", 4, 8)
    (8, 4.0)
    """
    return num_micro_batches / 2 if schedule == "dualpipe" and num_stages > 1 else num_micro_batches


@lru_cache(maxsize=4096)
def in_flight(
    schedule: Schedule, num_stages: int, num_chunks: int, num_micro_batches: int
) -> tuple[tuple[int, ...], ...]:
    """Micro-batches whose activations are alive at the worst moment, per rank per chunk.

    The worst moment of a rank is the first one at which most are alive, all of its chunks together and counted alike.
    Activations live from their forward pass to the end of their backward pass; with `zero-bubble` to the end of the
    weight gradient, which needs the inputs of every matrix (most of what is kept: arXiv:2401.10241, Table 1), so that
    there every rank has as many as the first.

        gpipe        m
        1f1b         min(m, p - rank) (arXiv:2104.04473, section 2.2.1: at most p)
        interleaved  2 (p - 1 - rank) + (v - 1) group + 1 chunks, the first of the order
        zero-bubble  min(m, p)
        dualpipe     p + 1: p - rank of chunk 0 and rank + 1 of chunk 1 (arXiv:2412.19437, Table 2)

    Args:
        schedule: which one.
        num_stages: pipeline ranks; one is no pipeline and has one micro-batch in flight.
        num_chunks: of each rank; 2 for `dualpipe`.
        num_micro_batches: of a step.

    >>> in_flight("1f1b", 4, 1, 8), in_flight("dualpipe", 4, 2, 8)[0]
    (((4,), (3,), (2,), (1,)), (4, 1))
    """
    ranks = range(num_stages)
    if num_stages == 1:
        return ((1,) * num_chunks,)
    if schedule == "gpipe":
        return ((num_micro_batches,),) * num_stages
    if schedule == "1f1b":
        return tuple((min(num_micro_batches, num_stages - rank),) for rank in ranks)
    if schedule == "zero-bubble":
        return ((min(num_micro_batches, num_stages),),) * num_stages
    if schedule == "dualpipe":
        return tuple((num_stages - rank, rank + 1) for rank in ranks)
    return tuple(_interleaved_in_flight(num_stages, num_chunks, num_micro_batches, rank) for rank in ranks)


def _interleaved_in_flight(num_stages: int, num_chunks: int, num_micro_batches: int, rank: int) -> tuple[int, ...]:
    group = micro_batch_group(num_stages, num_micro_batches)
    left = min(interleaved_warm_up(num_stages, num_chunks, num_micro_batches, rank) + 1, num_chunks * num_micro_batches)
    alive = [0] * num_chunks
    for first in range(0, num_micro_batches, group):
        for chunk in range(num_chunks):
            run = min(group, num_micro_batches - first, left)
            alive[chunk] += run
            left -= run
        if not left:
            break
    return tuple(alive)


def schedule_refusals(
    schedule: Schedule,
    num_stages: int,
    num_chunks: int,
    num_micro_batches: int,
    *,
    groups: MicroBatchGroups = "any",
) -> tuple[str, ...]:
    """Why a schedule cannot run so, each with a remedy; empty if it can.

    Args:
        schedule: which one.
        num_stages: pipeline ranks.
        num_chunks: virtual stages of each rank (1 for `dualpipe`, whose second chunk is its own).
        num_micro_batches: of a step.
        groups: of micro-batches that the stack's `interleaved` runs (Megatron-LM before
            `microbatch_group_size_per_vp_stage`: as many as stages).

    >>> schedule_refusals("1f1b", 4, 1, 8)
    ()
    >>> schedule_refusals("1f1b", 4, 2, 8)
    ('1f1b runs 1 chunk on each of 4 stages, not 2: set virtual_stages to 1 or schedule to interleaved',)
    """
    reasons = []
    if schedule not in {"interleaved", "dualpipe"}:
        if num_chunks > 1 and num_stages > 1:
            reasons.append(
                f"{schedule} runs 1 chunk on each of {num_stages} stages, not {num_chunks}: "
                "set virtual_stages to 1 or schedule to interleaved"
            )
        return tuple(reasons)
    if num_stages == 1:
        reasons.append(f"{schedule} needs a pipeline: set pipeline_parallel to 2 or more, or schedule to 1f1b")
        return tuple(reasons)
    if schedule == "interleaved":
        if num_chunks < 2:
            reasons.append("interleaved needs 2 or more chunks on each stage: set virtual_stages, or schedule to 1f1b")
        if not runs_in_groups(groups, num_stages, num_micro_batches):
            wanted = -(-num_micro_batches // num_stages) * num_stages
            reasons.append(
                f"interleaved runs {_GROUPS[groups]} {num_stages} micro-batches on "
                f"{num_stages} stages, not {num_micro_batches}: take {wanted}, or set schedule to 1f1b"
            )
        return tuple(reasons)
    if num_chunks > 2:
        reasons.append(f"dualpipe has two chunks on each stage, not {num_chunks}: set virtual_stages to 1")
    if num_stages % 2:
        reasons.append(f"dualpipe needs an even number of stages, not {num_stages}: take {num_stages + 1}")
    if num_micro_batches % 2 or num_micro_batches < 2 * num_stages:
        wanted = max(2 * num_stages, num_micro_batches + num_micro_batches % 2)
        reasons.append(
            f"dualpipe needs an even number of micro-batches, twice its {num_stages} stages or more, not "
            f"{num_micro_batches}: take {wanted}, or set schedule to 1f1b or zero-bubble"
        )
    return tuple(reasons)
