"""`Seen`: an operation call as a price needs it, and the table that prices are entered in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torchledger.ops import Piece
from torchledger.tracer.signature import SparseMeta, TensorMeta

Price: TypeAlias = Callable[["Seen"], tuple[Piece, ...]]


@dataclass(frozen=True, slots=True)
class Seen:
    """An operation call with its results.

    Attributes:
        op: name of the operation without namespace and overload (`mm`).
        arguments: every argument by its name in the schema.
        results: the tensors it returned.
        needed: in the backward pass, which of its node's inputs need a gradient; nothing where that is not known.
        assumptions: what a price assumes; it may add to it.
    """

    op: str
    arguments: dict[str, Any]
    results: tuple[TensorMeta, ...]
    needed: tuple[bool, ...] | None = None
    assumptions: list[str] = field(default_factory=list)

    def tensor(self, name: str) -> TensorMeta:
        """The tensor argument of that name."""
        value = self.arguments[name]
        assert isinstance(value, TensorMeta), f"{self.op} has a tensor {name}"  # our table says so
        return value

    def optional(self, name: str) -> TensorMeta | None:
        """The tensor argument of that name, `None` where it was left out."""
        value = self.arguments.get(name)
        return value if isinstance(value, TensorMeta) else None

    def sparse(self, name: str) -> SparseMeta | None:
        """The sparse tensor argument of that name, `None` where it is a plain one or was left out."""
        value = self.arguments.get(name)
        return value if isinstance(value, SparseMeta) else None

    def flags(self, name: str) -> list[bool]:
        """A list of yes or no (`output_mask`)."""
        return [bool(item) for item in self.arguments[name][1:]]

    def is_needed(self, index: int) -> bool:
        """Whether the gradient of the node's input of that index is needed; yes where nobody knows."""
        return self.needed is None or self.needed[index]

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


#: Operation -> its price: torch's own by name (`mm`), others with their namespace (`mylib::my_op`). The overloads of
#: one operation share it.
prices: dict[str, Price] = {}

#: Namespaces of operations that go by their name alone.
_TORCH = frozenset({"aten", "prims", "c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "fsdp"})


def price_of(*names: str) -> Callable[[Price], Price]:
    """Enter a price under these operations, a custom one (torch.library) under its qualified name.

    A price is a function of `Seen`, an operation's arguments by name and its results, that returns pieces of `ops`::

        @price_of("mylib::my_matmul")
        def my_matmul(seen):
            (m, k), (_, n) = seen.tensor("a").shape, seen.tensor("b").shape
            return ops.matmul(1, m, n, k)

    The operation that a custom backward runs is one more name with a price of its own, whose pieces say whose gradient
    they make (`gradient_of`). A backward that runs torch's operations needs none.

    Args:
        names: operations, without overload.
    """

    def enter(price: Price) -> Price:
        for name in names:
            prices[name] = price
        return price

    return enter


def price_for(namespace: str, op: str) -> Price | None:
    """The price that was entered for an operation, `None` where there is none."""
    price = prices.get(f"{namespace}::{op}")
    return prices.get(op) if price is None and namespace in _TORCH else price


def size_of(shape: tuple[int, ...]) -> int:
    """Product of sizes."""
    count = 1
    for size in shape:
        count *= size
    return count
