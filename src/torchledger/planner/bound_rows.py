"""Which blocks pipeline ranks hold under an order, as counts: what bounds of seconds and bytes need of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import ge, le
from typing import NamedTuple

from torchledger.planner.assembly import Runs, assemble
from torchledger.planner.schedule import in_flight
from torchledger.planner.search_grid import Order
from torchledger.planner.stage import BlockKind
from torchledger.spec import ModelSpec, Strategy

#: How many of each of the model's distinct blocks.
Counts = tuple[int, ...]

#: Schedules in which a rank waits for the first micro-batch, and those before it for its last.
FILLED: frozenset[str] = frozenset({"gpipe", "1f1b", "interleaved", "zero-bubble"})
#: Those of them that run weight gradients where nothing waits for them.
SPLIT: frozenset[str] = frozenset({"zero-bubble"})


class TimeRow(NamedTuple):
    """What the seconds of a pipeline depend on.

    Attributes:
        is_whole: whether weight gradients are a part of what others wait for.
        ranks: of the latest rank of each composition, its blocks and those of the first chunks of all ranks before it
            (none where a rank's waiting is not known).
    """

    is_whole: bool
    ranks: tuple[tuple[Counts, Counts], ...]


class Held(NamedTuple):
    """What the bytes of a rank depend on.

    Attributes:
        blocks: that it holds, all chunks.
        alive: blocks whose activations are alive at the worst moment, each as often as it is.
        num_neighbours: ranks that it sends to or receives from.
    """

    blocks: Counts
    alive: Counts
    num_neighbours: int


#: The ranks of an order of which any may be the fullest.
HoldRow = tuple[Held, ...]


class Rows(NamedTuple):
    """Rows of several orders, without those that another is nowhere above."""

    time: tuple[TimeRow, ...]
    hold: tuple[HoldRow, ...]


class Placing:
    """How the blocks of one model lie over ranks.

    Args:
        spec: the model.
        kinds: its distinct blocks and where their layers are.
        embeddings_as_layers: the stack counts embedding and head as a layer each where it spreads them.
    """

    __slots__ = ("_kinds", "_known", "_rows", "_spec", "_together")

    def __init__(
        self, spec: ModelSpec, kinds: tuple[tuple[BlockKind, Runs], ...], *, embeddings_as_layers: bool
    ) -> None:
        self._spec = spec
        self._kinds = kinds
        self._together = embeddings_as_layers
        self._known: dict[tuple[Order, int], tuple[tuple[Counts, ...], ...]] = {}
        self._rows: dict[tuple[tuple[Order, ...], int, int], Rows] = {}

    def rows(self, orders: tuple[Order, ...], num_stages: int, number: int) -> Rows:
        """Rows of orders over so many stages, for so many micro-batches.

        >>> from torchledger.spec import AttentionSpec, MlpSpec
        >>> spec = ModelSpec("tiny", 100, 64, 8, 32, AttentionSpec(4), MlpSpec(64))
        >>> kinds = (("embedding", ()), ("layer", ((0, 8),)), ("head", ()))
        >>> placing = Placing(spec, kinds, embeddings_as_layers=False)
        >>> found = placing.rows((Order("1f1b", 1), Order("gpipe", 1)), 4, 16)  # 2 layers a rank
        >>> found.time[0].ranks[-1]  # the last rank has 2 layers and the head; before it are 6 layers and the embedding
        ((0, 2, 1), (1, 6, 0))
        >>> [held.blocks for held in found.hold[0]]  # 1F1B; GPipe's ranks hold the same, and more of it is alive
        [(1, 2, 0), (0, 2, 0), (0, 2, 1)]
        >>> [held.alive for held in found.hold[0]]  # of the middle ranks the earlier one has more in flight: 3
        [(4, 8, 0), (0, 6, 0), (0, 2, 1)]
        """
        key = (orders, num_stages, number)
        found = self._rows.get(key)
        if found is None:
            rows = [self._rows_of(order, num_stages, number) for order in orders]
            time, hold = _least(time for time, _ in rows), _least_held(hold for _, hold in rows)
            found = self._rows[key] = Rows(time, hold)
        return found

    def _rows_of(self, order: Order, num_stages: int, number: int) -> tuple[TimeRow, HoldRow]:
        stages = self._stages(order, num_stages)
        held = [_sum(chunks) for chunks in stages]
        hold = self._held(order, stages, num_stages, number)
        if order.schedule == "dualpipe" and num_stages > 1:  # each micro-batch runs in one of a rank's two chunks
            return TimeRow(is_whole=False, ranks=()), hold
        before, latest = _times(held[0], 0), {}
        for blocks, chunks in zip(held, stages, strict=True):
            latest[blocks] = before
            if order.schedule in FILLED:
                before = _sum((before, chunks[0]))
        return TimeRow(order.schedule not in SPLIT, tuple(latest.items())), hold

    def _held(self, order: Order, stages: Sequence[Sequence[Counts]], num_stages: int, number: int) -> HoldRow:
        """Of ranks that hold the same, those with most micro-batches in flight."""
        flying = in_flight(order.schedule, num_stages, len(stages[0]), number)
        fullest: dict[tuple[int, tuple[Counts, ...]], list[tuple[int, ...]]] = {}
        for rank, (chunks, flown) in enumerate(zip(stages, flying, strict=True)):
            neighbours = (rank > 0) + (rank < num_stages - 1)
            alike = fullest.setdefault((neighbours, tuple(chunks)), [])
            if not any(all(map(ge, other, flown)) for other in alike):
                alike[:] = [other for other in alike if not all(map(ge, flown, other))] + [flown]
        found = []
        for (neighbours, chunks), alike in fullest.items():
            blocks = _sum(chunks)
            found += [Held(blocks, _sum(map(_times, chunks, flown)), neighbours) for flown in alike]
        return tuple(found)

    def _stages(self, order: Order, num_stages: int) -> tuple[tuple[Counts, ...], ...]:
        """[stage][chunk] counts."""
        found = self._known.get((order, num_stages))
        if found is None:
            strategy = Strategy(
                pipeline_parallel=num_stages, schedule=order.schedule, virtual_stages=order.virtual_stages
            )
            assembly = assemble(self._kinds, self._spec, strategy, embeddings_as_layers=self._together)
            found = tuple(tuple(self._counts(chunk) for chunk in stage) for stage in assembly)
            self._known[order, num_stages] = found
        return found

    def _counts(self, chunk: Iterable[tuple[int, int]]) -> Counts:
        counts = [0] * len(self._kinds)
        for block, count in chunk:
            counts[block] += count
        return tuple(counts)


def _sum(found: Iterable[Counts]) -> Counts:
    return tuple([sum(each) for each in zip(*found, strict=True)])


def _times(counts: Counts, times: int) -> Counts:
    return tuple([count * times for count in counts])


def _least(found: Iterable[TimeRow]) -> tuple[TimeRow, ...]:
    distinct = dict.fromkeys(found)
    if len(distinct) == 1:
        return tuple(distinct)
    flat = {each: _flat(each) for each in distinct}
    return tuple(each for each in distinct if not any(_is_below(other, flat[each]) for other in flat.values()))


def _flat(row: TimeRow) -> tuple[int, ...]:
    """All of a row's numbers; a split order has less to wait for, so its flag counts as less."""
    return (int(row.is_whole), *(count for rank in row.ranks for counts in rank for count in counts))


def _is_below(other: Sequence[int], each: Sequence[int]) -> bool:
    return other != each and len(other) == len(each) and all(map(le, other, each))


def _least_held(found: Iterable[HoldRow]) -> tuple[HoldRow, ...]:
    """Rows of which no other is in everything below: each of its ranks below one of theirs."""
    kept: list[HoldRow] = []
    for row in dict.fromkeys(found):
        if not any(_holds_less(other, row) for other in kept):
            kept = [other for other in kept if not _holds_less(row, other)] + [row]
    return tuple(kept)


def _holds_less(other: HoldRow, row: HoldRow) -> bool:
    return all(any(_is_within(held, each) for each in row) for held in other)


def _is_within(held: Held, each: Held) -> bool:
    return (
        held.num_neighbours <= each.num_neighbours
        and all(map(le, held.alive, each.alive))
        and all(map(le, held.blocks, each.blocks))
    )
