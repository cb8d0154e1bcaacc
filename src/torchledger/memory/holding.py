"""Who held how much at one moment: blocks summed by where they were allocated, or by size."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torchledger.memory.timeline import Block


@dataclass(frozen=True, slots=True)
class Holding:
    """Blocks of one kind.

    Attributes:
        what: where they were allocated, or their size as text of digits.
        op: the operations that made them, most bytes first, where known.
        num_blocks: how many.
        num_bytes: bytes asked for, together.
        largest_bytes: of these, the largest one.
    """

    what: str
    op: str
    num_blocks: int
    num_bytes: int
    largest_bytes: int


def by_source(blocks: Iterable[Block]) -> tuple[Holding, ...]:
    """Blocks by the line or node that allocated them, most bytes first.

    >>> [(h.what, h.num_bytes) for h in by_source([Block(3, "inputs", source="a:1"), Block(4, "inputs", source="b:2")])]
    [('b:2', 4), ('a:1', 3)]
    """
    return _grouped(blocks, lambda block: block.source)


def by_size(blocks: Iterable[Block]) -> tuple[Holding, ...]:
    """Blocks by their size in bytes, most bytes first."""
    return _grouped(blocks, lambda block: str(block.num_bytes))


def _grouped(blocks: Iterable[Block], key: Callable[[Block], str]) -> tuple[Holding, ...]:
    groups: dict[str, list[Block]] = {}
    for block in blocks:
        groups.setdefault(key(block), []).append(block)
    found = [
        Holding(
            what,
            ", ".join(_operations(group)),
            len(group),
            sum(block.num_bytes for block in group),
            max(block.num_bytes for block in group),
        )
        for what, group in groups.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.num_bytes, each.what)))


def _operations(blocks: Iterable[Block]) -> list[str]:
    num_bytes: dict[str, int] = {}
    for block in blocks:
        if block.op:
            num_bytes[block.op] = num_bytes.get(block.op, 0) + block.num_bytes
    return sorted(num_bytes, key=lambda op: -num_bytes[op])
