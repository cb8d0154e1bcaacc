"""`Memory`: bytes alive now and at their most, by part; and `Block`, bytes that live as long as somebody holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchledger.formula.lifetimes.checkpoint import Region
    from torchledger.formula.lifetimes.tensors import Tensor


class Memory:
    """What is alive, counted as it comes and goes.

    Attributes:
        now: bytes alive by part.
        fullest: `now` at the fullest moment so far.
        most: bytes of it.
        place: what runs now; whoever runs it says so.
        fullest_place: what ran at the fullest moment.
        num_nodes: operations with a gradient that have run.
        records: whether operations have gradients (they have none in a backward pass).
        region: the checkpoint that runs, which decides what is kept; nothing outside of one.
        casts: under autocast, the copies of parameters made so far; nothing without.
    """

    __slots__ = (
        "casts",
        "fullest",
        "fullest_place",
        "most",
        "now",
        "num_nodes",
        "place",
        "records",
        "region",
        "total",
    )

    def __init__(self) -> None:
        self.now: dict[str, int] = {}
        self.total, self.most = 0, 0
        self.fullest: dict[str, int] = {}
        self.place, self.fullest_place = "", ""
        self.num_nodes, self.records = 0, True
        self.region: Region | None = None
        self.casts: dict[int, Tensor] | None = None

    def change(self, part: str, num_bytes: int) -> None:
        """So many bytes of a part more, or less."""
        self.now[part] = self.now.get(part, 0) + num_bytes
        self.total += num_bytes
        if self.total > self.most:
            self.most, self.fullest, self.fullest_place = self.total, dict(self.now), self.place

    def forget(self) -> None:
        """Begin anew with what is alive."""
        self.most, self.fullest, self.fullest_place = self.total, dict(self.now), self.place


class Block:
    """Bytes of one storage: alive from here on until its last tensor is gone, as a storage of torch is.

    CPython counts references as torch does, so that a block goes when the last tensor on it does.
    """

    __slots__ = ("memory", "num_bytes", "part")

    def __init__(self, memory: Memory, num_bytes: int, part: str = "temporaries") -> None:
        self.memory, self.num_bytes, self.part = memory, num_bytes, part
        memory.change(part, num_bytes)

    def becomes(self, part: str) -> None:
        """It turns out to be of another part."""
        if part != self.part:
            self.memory.now[self.part] -= self.num_bytes
            self.memory.now[part] = self.memory.now.get(part, 0) + self.num_bytes
            self.part = part

    def __del__(self) -> None:
        self.memory.change(self.part, -self.num_bytes)
