"""Storages that change their size in place: below every mode, and how FSDP frees and gathers parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch


@contextlib.contextmanager
def seen_resizes(resized: Callable[[torch.UntypedStorage], None]) -> Iterator[None]:
    """While this is on, `resized` is told of every storage that Python code has resized."""
    original, own = torch.UntypedStorage.resize_, torch.UntypedStorage.__dict__.get("resize_")

    def resize_(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        original(storage, size)
        resized(storage)
        return storage

    torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign, assignment]  # put back below
    try:
        yield
    finally:
        del torch.UntypedStorage.resize_  # which uncovers the inherited one
        if own is not None:
            torch.UntypedStorage.resize_ = own  # type: ignore[method-assign]  # another recording's
