"""A collective's handle where nothing is sent: it has ended as soon as it begins."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.distributed import Work


class Done(Work):
    """A finished collective. torch's own fake one has no result, without which DDP's reducer stops.

    Args:
        tensors: what the collective has written; whoever waits for it holds them.
    """

    def __init__(self, tensors: list[Any]) -> None:
        super().__init__()
        self._tensors = [weakref.ref(tensor) for tensor in tensors if isinstance(tensor, torch.Tensor)]

    def wait(self, timeout: Any = None) -> bool:
        """It has ended."""
        del timeout
        return True

    def is_completed(self) -> bool:
        """It has."""
        return True

    def is_success(self) -> bool:
        """It was."""
        return True

    def result(self) -> list[torch.Tensor]:
        """What it has written, as far as it is still there."""
        return [tensor for tensor in (reference() for reference in self._tensors) if tensor is not None]

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """The same as a future."""
        future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        future.set_result(self.result())
        return future


# torch's own handle does not keep the Python object, and without it would wait for ever. So all are kept while a run
# lasts; they hold no tensors.
_kept: list[Done] = []


def done(tensors: list[Any]) -> Any:
    """A finished collective's handle, as operations return it."""
    _kept.append(Done(tensors))
    return _kept[-1].boxed()


def forget() -> None:
    """The run has ended, and nobody waits any more."""
    _kept.clear()
