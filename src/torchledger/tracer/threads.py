"""Other threads: what a recording puts in the place of torch's functions and hooks is there for them too."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch


def is_elsewhere(thread: int) -> bool:
    """Whether the code that runs now has nothing to do with the recording that a thread began.

    torch keeps modes by thread, and takes them along into the threads of autograd's engine. So a thread without one is
    the user's own: one that loads data, or trains, in the meantime.

    Args:
        thread: the one that began the recording.
    """
    return get_ident() != thread and not torch._C._len_torch_dispatch_stack()  # noqa: SLF001  # no public door to the modes


def here(told: Callable[..., None]) -> Callable[..., None]:
    """`told`, which then hears of nothing that happens elsewhere."""
    thread = get_ident()

    def tell(*args: Any) -> None:
        if not is_elsewhere(thread):
            told(*args)

    return tell
