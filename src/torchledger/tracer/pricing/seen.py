"""`Seen`: an operation call as a price needs it, and the table that prices are entered in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from torchledger.ops import Piece
from torchledger.tracer.signature import TensorMeta

Price: TypeAlias = Callable[["Seen"], tuple[Piece, ...]]


@dataclass(frozen=True, slots=True)
class Seen:
    """An operation call with its results.

    Attributes:
        op: name of the operation without namespace and overload (`mm`).
        arguments: every argument by its name in the schema.
        results: the tensors it returned.
    """

    op: str
    arguments: dict[str, Any]
    results: tuple[TensorMeta, ...]

    def tensor(self, name: str) -> TensorMeta:
        """The tensor argument of that name."""
        value = self.arguments[name]
        assert isinstance(value, TensorMeta), f"{self.op} has a tensor {name}"  # our table says so
        return value

    def optional(self, name: str) -> TensorMeta | None:
        """The tensor argument of that name, `None` where it was left out."""
        value = self.arguments.get(name)
        return value if isinstance(value, TensorMeta) else None

    def tensors(self, name: str) -> list[TensorMeta]:
        """The tensors of a list argument."""
        value = self.arguments[name]
        return [item for item in value[1:] if isinstance(item, TensorMeta)] if value else []

    @property
    def first(self) -> TensorMeta:
        """The first tensor among the arguments, else the first result."""
        for value in self.arguments.values():
            if isinstance(value, TensorMeta):
                return value
            if isinstance(value, tuple) and len(value) > 1 and isinstance(value[1], TensorMeta):
                return value[1]
        return self.results[0]

    @property
    def num_results(self) -> int:
        """Elements of the first result, of the first argument where nothing is returned."""
        return (self.results[0] if self.results else self.first).num_elements


#: Operation without namespace and overload -> its price. Several overloads of one operation share it.
prices: dict[str, Price] = {}


def price_of(*names: str) -> Callable[[Price], Price]:
    """Enter a price under these operations."""

    def enter(price: Price) -> Price:
        for name in names:
            prices[name] = price
        return price

    return enter


def size_of(shape: tuple[int, ...]) -> int:
    """Product of sizes."""
    count = 1
    for size in shape:
        count *= size
    return count
