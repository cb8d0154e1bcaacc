"""Numbers that torch's own optimizers and scalers read from tensors: answered, for they decide no shape."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException

from torchledger.tracer.targets.cuda.replacing import replaced

NORMS_ARE_ONE = "an optimizer reads norms of parameters or gradients (Adafactor): each is taken to be 1"


@contextlib.contextmanager
def optimizers_are_answered(assume: Callable[[str], None]) -> Iterator[None]:
    """While this is on, `.item()` inside torch.optim of a tensor without data is 1, and a scaler is at its first scale.

    Args:
        assume: is told of it when it happens.
    """
    item: Any = torch._C.TensorBase.item  # noqa: SLF001  # where the method is that is replaced here

    def answered(tensor: torch.Tensor) -> Any:
        try:
            return item(tensor)
        except DataDependentOutputException:
            asking = sys._getframe(1).f_globals.get("__name__", "")  # noqa: SLF001  # who asks decides
            if not asking.startswith("torch.optim"):
                raise
            assume(NORMS_ARE_ONE)
            return 1.0

    def scale(scaler: Any) -> float:
        return float(scaler._init_scale) if scaler.is_enabled() else 1.0  # noqa: SLF001  # at which it stays

    def growth(scaler: Any) -> int:
        return int(scaler._init_growth_tracker) if scaler.is_enabled() else 0  # noqa: SLF001  # as above

    scaler = {"get_scale": scale, "_get_growth_tracker": growth}
    with replaced(torch.Tensor, {"item": answered}), replaced(torch.amp.GradScaler, scaler):
        yield
