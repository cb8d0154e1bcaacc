"""What one rank finds, all ranks act on: so that none waits for another that has turned elsewhere."""

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["any_rank"]


def any_rank(told: bool, device: torch.device, group: "ProcessGroup | None") -> bool:
    """Whether any rank says so; all ranks together.

    Args:
        told: what this rank says.
        device: where its tensors are.
        group: the ranks; nothing is one process.
    """
    if group is None:
        return told
    from torch.distributed import all_reduce

    count = torch.tensor(float(told), device=device)
    all_reduce(count, group=group)
    return count.item() > 0
