"""Python numbers that autograd saves: torch wraps them in tensors of 8 bytes, below every mode."""

from __future__ import annotations

from typing import Any

import torch

from torchledger.tracer.graph import Place, is_recomputing
from torchledger.tracer.storages import Entry, Storages

#: Operations whose second operand may be a number and is saved for the gradient of the first (derivatives.yaml).
SAVING = frozenset(
    {
        torch.ops.aten.mul.Tensor,
        torch.ops.aten.mul_.Tensor,
        torch.ops.aten.div.Tensor,
        torch.ops.aten.div_.Tensor,
    }
)
_SIZES: dict[type, int] = {bool: 1, int: 8, float: 8, complex: 16}


class SavedScalars:
    """The wrapped numbers that live, from the forward operation to the end of its node's backward.

    Hooks on saved tensors do not see them, so checkpointing keeps them as well. What non-reentrant checkpointing
    recomputes makes new ones, which die with the recomputed graph, when the recomputation ends.

    Args:
        storages: where they are entered.
        on_host: whether the tensors stand on an accelerator; the numbers stay in the host's memory.
    """

    def __init__(self, storages: Storages, *, on_host: bool = False) -> None:
        self._storages = storages
        self._on_host = on_host
        self._by_node: dict[int, list[Entry]] = {}
        self._running: int | None = None
        self._ending: list[Entry] = []
        self._recomputed: list[Entry] = []

    def saved(self, args: tuple[Any, ...], place: Place, call: int) -> None:
        """An operation of `SAVING` has run in a forward pass."""
        value = args[1]
        if isinstance(value, torch.Tensor) or not (torch.is_grad_enabled() and args[0].requires_grad):
            return
        size = _SIZES[type(value)]
        entry = self._storages.allocate_unseen(
            size, op="wrapped_number", module=place.module, source=place.source, call=call
        )
        entry.on_host = self._on_host
        if is_recomputing():
            self._recomputed.append(entry)
        else:
            number = torch.autograd._get_sequence_nr() - 1  # type: ignore[attr-defined]  # noqa: SLF001  # as in `Graph`
            self._by_node.setdefault(number, []).append(entry)

    def recomputed(self) -> None:
        """An operation runs again, for a node that asks for what it saved: the node before it is done."""
        self._running = None
        self._end()

    def entered(self, node: Any) -> None:
        """A backward operation of `node` is about to run: what the node before had saved is gone by now."""
        while self._recomputed:
            self._storages.free(self._recomputed.pop())
        number = None if node is None else node._sequence_nr()  # noqa: SLF001  # as in `Graph`
        if number == self._running:
            return
        self._end()
        self._running = number
        if number is not None:
            self._ending.extend(self._by_node.pop(number, ()))

    def backward_ended(self) -> None:
        """The engine has stopped: no graph is left to hold anything."""
        self._running = None
        for entries in self._by_node.values():
            self._ending.extend(entries)
        self._by_node.clear()
        self._end()

    def _end(self) -> None:
        for entry in self._ending:
            self._storages.free(entry)
        self._ending.clear()
