"""The order in which every rank of a pipeline runs its micro-batches: what a schedule is.

Ranks run their pieces in a fixed order and wait for what other ranks send. So the order alone says how many
micro-batches are in flight; with seconds (`simulation`) it says how long a step takes.

`gpipe`        all forward, then all backward passes (arXiv:1811.06965)
`1f1b`         num_stages - 1 - rank forward passes, then one forward and one backward pass in turn (PipeDream-flush,
               arXiv:2104.04473, section 2.2.1)
`interleaved`  the same over chunks, micro-batches in groups (arXiv:2104.04473, section 2.2.2; the order of
               Megatron-Core's `get_schedule_table` and `get_pp_rank_microbatches`)
`zero-bubble`  ZB-H1 (arXiv:2401.10241, section 2.1): 1F1B whose weight gradients run num_stages - 1 turns after their
               forward pass on every rank, so that they fill the end
`dualpipe`     micro-batches enter at both ends, every rank holds two chunks (arXiv:2412.19437, section 3.2.1; the eight
               steps of the published DualPipe.step)
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

from torchledger.spec.strategy import Schedule

PieceKind = Literal["forward", "backward", "input gradient", "weight gradient"]


class Piece(NamedTuple):
    """One micro-batch through one chunk. `backward` is both gradients at once."""

    what: PieceKind
    chunk: int
    micro_batch: int


#: Pieces that start together, when all of their inputs are there, and hand on their results together, when all of them
#: have run: one piece, or the overlapped forward and backward pass of DualPipe.
Turn = tuple[Piece, ...]


def order(schedule: Schedule, num_stages: int, num_chunks: int, num_micro_batches: int) -> tuple[tuple[Turn, ...], ...]:
    """What every rank runs, in order.

    Args:
        schedule: which one.
        num_stages: pipeline ranks.
        num_chunks: chunks of layers of each rank; 2 for `dualpipe`.
        num_micro_batches: of a step; those of both directions for `dualpipe`.

    Returns:
        Per rank its turns. One rank is no pipeline: every micro-batch runs forward and backward before the next.

    >>> [f"{piece.what[0]}{piece.micro_batch}" for (piece,) in order("1f1b", 2, 1, 3)[0]]
    ['f0', 'f1', 'b0', 'f2', 'b1', 'b2']
    """
    ranks = range(num_stages)
    if num_stages == 1:
        return (_single(num_chunks, num_micro_batches),)
    if schedule == "gpipe":
        return tuple(_one_by_one(num_micro_batches, num_micro_batches) for _ in ranks)
    if schedule == "1f1b":
        return tuple(_one_by_one(num_stages - 1 - rank, num_micro_batches) for rank in ranks)
    if schedule == "interleaved":
        table = _table(num_stages, num_chunks, num_micro_batches)
        warm_up = (interleaved_warm_up(num_stages, num_chunks, num_micro_batches, rank) for rank in ranks)
        return tuple(_interleaved(each, num_chunks, table) for each in warm_up)
    if schedule == "zero-bubble":
        return tuple(_zero_bubble(num_stages, num_micro_batches, rank) for rank in ranks)
    return tuple(tuple(_dualpipe(num_stages, num_micro_batches // 2, rank)) for rank in ranks)


#: The (rank, chunk) that follows or precedes a (rank, chunk) on the way forward.
Neighbours = dict[tuple[int, int], tuple[int, int]]


def neighbours(schedule: Schedule, num_stages: int, num_chunks: int) -> tuple[Neighbours, Neighbours]:
    """The (rank, chunk) before and after each one, as a micro-batch passes them forward.

    `dualpipe` has two ways: chunk 0 of ranks 0, 1, 2 ..., and chunk 1 of the same ranks backwards. The others have one,
    through chunk 0 of all ranks, then chunk 1 of all ranks ...

    >>> before, after = neighbours("interleaved", 2, 2)
    >>> after[1, 0], before[0, 1], (1, 1) in after
    ((0, 1), (1, 0), False)
    """
    ways = [[(rank, chunk) for chunk in range(num_chunks) for rank in range(num_stages)]]
    if schedule == "dualpipe" and num_stages > 1:
        ways = [[(rank, 0) for rank in range(num_stages)], [(rank, 1) for rank in reversed(range(num_stages))]]
    after = {here: there for way in ways for here, there in pairwise(way)}
    return {there: here for here, there in after.items()}, after


def as_message(piece: Piece) -> Piece:
    """A piece as what reaches it: gradients are one message, whether weight gradients run apart or not."""
    return piece if piece.what == "forward" else piece._replace(what="backward")


#: Groups of micro-batches that interleaved chunks run in turn: of as many as `stages`; `equal` ones, as many as the
#: stages go into the micro-batches; or `any` that are not smaller than the stages, the last one unlike the rest.
MicroBatchGroups = Literal["stages", "equal", "any"]


def runs_in_groups(groups: MicroBatchGroups, num_stages: int, num_micro_batches: int) -> bool:
    """Whether an interleaved schedule with such groups can run so many micro-batches.

    >>> [[m for m in range(1, 13) if runs_in_groups(groups, 4, m)] for groups in ("stages", "equal")]
    [[4, 8, 12], [4, 5, 6, 7, 8, 10, 12]]
    """
    if num_micro_batches < num_stages:
        return False
    if groups == "stages":
        return num_micro_batches % num_stages == 0
    return groups == "any" or num_micro_batches % (num_micro_batches // num_stages) == 0


def micro_batch_group(num_stages: int, num_micro_batches: int) -> int:
    """Micro-batches that run through one chunk before the next chunk's turn comes (`interleaved`).

    The number of stages where it divides the micro-batches. Otherwise the next size that Megatron-Core runs
    (`microbatch_group_size_per_vp_stage`: at least the stages, at most the micro-batches, and a last group that is not
    smaller than the stages), and PyTorch too where it runs them at all (`microbatches_per_round`).

    >>> micro_batch_group(4, 16), micro_batch_group(4, 9), micro_batch_group(4, 7)
    (4, 5, 7)
    """
    for size in range(num_stages, num_micro_batches):
        rest = num_micro_batches % size
        if rest == 0 or rest >= num_stages:
            return size
    return num_micro_batches


def interleaved_warm_up(num_stages: int, num_chunks: int, num_micro_batches: int, rank: int) -> int:
    """Forward passes of chunks that a rank runs before its first backward pass but one (`get_pp_rank_microbatches`)."""
    group = micro_batch_group(num_stages, num_micro_batches)
    return min(2 * (num_stages - 1 - rank) + (num_chunks - 1) * group, num_chunks * num_micro_batches)


def _single(num_chunks: int, num_micro_batches: int) -> tuple[Turn, ...]:
    return tuple(
        turn
        for k in range(num_micro_batches)
        for turn in (
            *((Piece("forward", chunk, k),) for chunk in range(num_chunks)),
            *((Piece("backward", chunk, k),) for chunk in reversed(range(num_chunks))),
        )
    )


def _one_by_one(warm_up: int, num_micro_batches: int) -> tuple[Turn, ...]:
    forward: list[Turn] = [(Piece("forward", 0, k),) for k in range(num_micro_batches)]
    backward: list[Turn] = [(Piece("backward", 0, k),) for k in range(num_micro_batches)]
    return _alternating(warm_up, forward, backward)


def _alternating(warm_up: int, forward: list[Turn], backward: list[Turn]) -> tuple[Turn, ...]:
    steady = len(forward) - min(warm_up, len(forward))
    turns = forward[: len(forward) - steady]
    for k in range(steady):
        turns += (forward[len(forward) - steady + k], backward[k])
    return tuple(turns + backward[steady:])


@lru_cache(maxsize=64)
def _table(num_stages: int, num_chunks: int, num_micro_batches: int) -> tuple[tuple[int, int], ...]:
    group = micro_batch_group(num_stages, num_micro_batches)
    return tuple(
        (chunk, k)
        for first in range(0, num_micro_batches, group)
        for chunk in range(num_chunks)
        for k in range(first, min(first + group, num_micro_batches))
    )


def _interleaved(warm_up: int, num_chunks: int, table: Iterable[tuple[int, int]]) -> tuple[Turn, ...]:
    forward: list[Turn] = [(Piece("forward", chunk, k),) for chunk, k in table]
    backward: list[Turn] = [(Piece("backward", num_chunks - 1 - chunk, k),) for chunk, k in table]
    return _alternating(warm_up, forward, backward)


def _zero_bubble(num_stages: int, num_micro_batches: int, rank: int) -> tuple[Turn, ...]:
    turns = []
    for turn in range(num_micro_batches + num_stages - 1):
        pieces: tuple[tuple[PieceKind, int], ...] = (
            ("forward", turn),
            ("input gradient", turn - (num_stages - 1 - rank)),
            ("weight gradient", turn - (num_stages - 1)),
        )
        turns += [(Piece(what, 0, k),) for what, k in pieces if 0 <= k < num_micro_batches]
    return tuple(turns)


def _dualpipe(num_stages: int, half: int, rank: int) -> Iterable[Turn]:
    """The eight steps of DualPipe.step; micro-batches that start at the last rank have numbers half + k."""
    near = min(rank, num_stages - 1 - rank)
    rest = num_stages // 2 - near - 1
    later = int(rank >= num_stages // 2)  # these ranks are nearer to the other end: their first direction is 1
    counts = {(what, direction): 0 for what in ("forward", "backward", "weight gradient") for direction in (0, 1)}
    waiting: list[Piece] = []

    def piece(what: PieceKind, phase: int) -> Piece:
        direction = phase ^ later
        key = ("forward" if what == "forward" else "backward", direction)
        counts[key] += 1
        done = Piece(what, direction, direction * half + counts[key] - 1)
        if what == "input gradient":
            waiting.append(done._replace(what="weight gradient"))
        return done

    for _ in range(2 * rest):
        yield (piece("forward", 0),)
    for _ in range(near + 1):
        yield (piece("forward", 0),)
        yield (piece("forward", 1),)
    for _ in range(rest):
        yield (piece("input gradient", 1),)
        yield (waiting.pop(0),)
        yield (piece("forward", 1),)
    for turn in range(half - num_stages + near + 1):
        if turn == 0 and rest == 0:  # the two middle ranks start without overlap
            yield (piece("forward", 0),)
            yield (piece("backward", 1),)
        else:
            yield (piece("forward", 0), piece("backward", 1))
        yield (piece("forward", 1), piece("backward", 0))
    for _ in range(rest):
        yield (piece("backward", 1),)
        yield (piece("forward", 1), piece("backward", 0))
    for turn in range(2 * (near + 1)):
        split = turn > near  # the second half of these
        yield (piece("input gradient" if split else "backward", 1 - turn % 2),)
    for _ in range(rest):
        yield (waiting.pop(0),)
        yield (piece("input gradient", 0),)
    while waiting:
        yield (waiting.pop(0),)
