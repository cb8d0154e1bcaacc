"""How a model's layers lie over pipeline ranks under an order: what bounds of seconds and bytes need of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple, TypeVar

from torchledger.planner.assembly import layers_of_chunks
from torchledger.planner.schedule import in_flight, parts
from torchledger.planner.search_grid import Order

#: Schedules in which a rank waits for the first micro-batch, and those before it for its last.
FILLED: frozenset[str] = frozenset({"gpipe", "1f1b", "interleaved", "zero-bubble"})
#: Those of them that run weight gradients where nothing waits for them.
SPLIT: frozenset[str] = frozenset({"zero-bubble"})


class TimeRow(NamedTuple):
    """What the seconds of a pipeline depend on.

    Attributes:
        is_whole: whether weight gradients are a part of what others wait for.
        last: layers of the last rank, all chunks.
        before: layers of the first chunks of all ranks but the last; 0 where a rank's waiting is not known.
        most: layers of the latest of the other ranks that have most.
        before_most: layers of the first chunks of the ranks before that one.
    """

    is_whole: bool
    last: int
    before: int
    most: int
    before_most: int


class HoldRow(NamedTuple):
    """What the bytes of the first and the last rank depend on.

    Attributes:
        first, last: layers that they hold, all chunks.
        alive_first, alive_last: layers whose activations are alive at the worst moment, each as often as it is.
    """

    first: int
    last: int
    alive_first: int
    alive_last: int


class Rows(NamedTuple):
    """Rows of several orders, without those that another is nowhere above."""

    time: tuple[TimeRow, ...]
    hold: tuple[HoldRow, ...]


@lru_cache(maxsize=65536)
def rows(
    orders: tuple[Order, ...], num_stages: int, num_layers: int, number: int, *, embeddings_as_layers: bool
) -> Rows:
    """Rows of orders over stages, for so many micro-batches.

    >>> found = rows((Order("1f1b", 1), Order("gpipe", 1)), 4, 8, 16, embeddings_as_layers=False)  # 2 layers a rank
    >>> found.time
    (TimeRow(is_whole=True, last=2, before=6, most=2, before_most=4),)
    >>> found.hold  # GPipe's first rank has 16 micro-batches in flight, 1F1B's has 4
    (HoldRow(first=2, last=2, alive_first=8, alive_last=2),)
    """
    found = [_rows_of(order, num_stages, num_layers, number, embeddings_as_layers) for order in orders]
    return Rows(_least(time for time, _ in found), _least(hold for _, hold in found))


def _rows_of(
    order: Order, num_stages: int, num_layers: int, number: int, embeddings_as_layers: bool
) -> tuple[TimeRow, HoldRow]:
    held = parts(order.schedule, num_stages, order.virtual_stages)
    counts = layers_of_chunks(num_layers, 1 + max(map(max, held)), embeddings_as_layers)
    layers = [sum(counts[part] for part in own) for own in held]
    flying = in_flight(order.schedule, num_stages, len(held[0]), number)
    alive = [
        sum(counts[part] * flown for part, flown in zip(held[rank], flying[rank], strict=True)) for rank in (0, -1)
    ]
    hold = HoldRow(layers[0], layers[-1], alive[0], alive[1])
    if order.schedule == "dualpipe" and num_stages > 1:  # each micro-batch runs in one of a rank's two chunks
        return TimeRow(False, 0, 0, 0, 0), hold
    before = [0, *accumulate(counts[own[0]] for own in held[:-1])] if order.schedule in FILLED else [0] * num_stages
    most = max(layers[:-1], default=0)
    latest = max((rank for rank in range(num_stages - 1) if layers[rank] == most), default=0)
    return TimeRow(order.schedule not in SPLIT, layers[-1], before[-1], most, before[latest]), hold


_R = TypeVar("_R", TimeRow, HoldRow)


def _least(found: Iterable[_R]) -> tuple[_R, ...]:
    distinct = dict.fromkeys(found)
    return tuple(each for each in distinct if not any(_is_below(other, each) for other in distinct))


def _is_below(other: Sequence[int], each: Sequence[int]) -> bool:
    return other != each and all(mine <= theirs for mine, theirs in zip(other, each, strict=True))
