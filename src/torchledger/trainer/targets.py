"""Which targets count, and what share of a step's losses a micro-batch has by them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

__all__ = ["IGNORED", "Shares", "count_targets", "target_shares"]

#: A target that does not count: torch's own number for it (`ignore_index` of `torch.nn.functional.cross_entropy`).
IGNORED = -100


@dataclass(frozen=True, slots=True)
class Shares:
    """What each mean over a micro-batch counts in a step: its share of what the mean is over.

    On many ranks, whose gradients are averaged, times their number.

    Attributes:
        main: of the model's own loss, a mean over the targets that count.
        further: of the loss of each prediction layer, whose targets are others.
        tokens: of what is a mean over all tokens (the load-balancing loss).
    """

    main: float = 1.0
    further: tuple[float, ...] = ()
    tokens: float = 1.0

    @property
    def are_equal(self) -> bool:
        """Whether one number says it all, as wherever every target counts."""
        return all(each == self.main for each in (*self.further, self.tokens))


def count_targets(targets: Int[Tensor, "rows length"]) -> int:
    """How many targets count; all of them where there are no values to look at (fake and meta tensors).

    On the CPU NumPy counts, so that nothing of it is in the books of a step; elsewhere this waits for the device.
    """
    return _counts([targets], 0)[0][0]


def target_shares(
    targets: Sequence[Int[Tensor, "rows length"]],
    *,
    num_further: int = 0,
    added_up: Callable[[list[int]], list[int]] | None = None,
    num_averaged: int = 1,
) -> list[Shares]:
    """Share of each micro-batch in a step's losses. A single one in a single process is the step.

    With n targets of N in the whole step, D ranks whose gradients are averaged, and the mean loss l of a micro-batch,
    Σ n·l / N = (1/D)·Σ (n·D/N)·l: the loss and the gradient of one batch, however it is cut.

    Args:
        targets: of each micro-batch of this process.
        num_further: how many prediction layers there are; the loss of number d is over the targets d tokens further.
        added_up: numbers of this process, added up over all that have other rows; nothing where there is none.
        num_averaged: how many such processes there are.

    >>> first, second = target_shares([torch.tensor([[1, 2, 3]]), torch.tensor([[4, IGNORED, IGNORED]])])
    >>> first.main, second.main
    (0.75, 0.25)
    """
    if len(targets) == 1 and added_up is None:
        return [Shares(further=(1.0,) * num_further)]
    counts = _counts(targets, num_further)
    totals = [sum(column) for column in zip(*counts, strict=True)]
    totals = totals if added_up is None else added_up(totals)
    sizes = [each.numel() for each in targets]
    return [
        Shares(*_of(count, totals, num_averaged), tokens=size / sum(sizes))
        for count, size in zip(counts, sizes, strict=True)
    ]


def _of(counts: Sequence[int], totals: Sequence[int], num_averaged: int) -> tuple[float, tuple[float, ...]]:
    main, *further = (count * num_averaged / max(total, 1) for count, total in zip(counts, totals, strict=True))
    return main, tuple(further)


def _counts(targets: Sequence[Int[Tensor, "rows length"]], num_further: int) -> list[list[int]]:
    """How many of each micro-batch's targets count, and how many of those 1, 2 ... tokens further."""
    cut = [[each[:, depth:] for depth in range(1 + num_further)] for each in targets]
    first = targets[0]
    if first.is_meta or isinstance(first, FakeTensor):
        return [[part.numel() for part in parts] for parts in cut]
    if first.device.type == "cpu":
        return [[int(np.count_nonzero(part.numpy() != IGNORED)) for part in parts] for parts in cut]
    flat = torch.stack([torch.count_nonzero(part != IGNORED) for parts in cut for part in parts])
    found: list[list[int]] = flat.view(len(targets), -1).tolist()
    return found
