"""Which targets count, and what share of a step's loss a micro-batch has by them."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

__all__ = ["IGNORED", "count_targets", "target_shares"]

#: A target that does not count: torch's own number for it (`ignore_index` of `torch.nn.functional.cross_entropy`).
IGNORED = -100


def count_targets(targets: Int[Tensor, "rows length"]) -> int:
    """How many targets count; all of them where there are no values to look at (fake and meta tensors).

    On the CPU NumPy counts, so that nothing of it is in the books of a step; elsewhere this waits for the device.
    """
    if targets.is_meta or isinstance(targets, FakeTensor):
        return targets.numel()
    if targets.device.type == "cpu":
        return int(np.count_nonzero(targets.numpy() != IGNORED))
    return int(torch.count_nonzero(targets != IGNORED).item())


def target_shares(targets: Sequence[Int[Tensor, "rows length"]]) -> list[float]:
    """Share of each micro-batch in the targets of a step: the weight of its mean loss. A single one is the step.

    >>> target_shares([torch.tensor([[1, 2, 3]]), torch.tensor([[4, IGNORED, IGNORED]])])
    [0.75, 0.25]
    """
    if len(targets) == 1:
        return [1.0]
    counts = [count_targets(each) for each in targets]
    total = max(sum(counts), 1)
    return [count / total for count in counts]
