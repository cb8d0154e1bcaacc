"""States of the CPU generator that torch allocates below every mode."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch


@contextlib.contextmanager
def seen_rng_states(adopt: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Show every saved state of the CPU generator to `adopt`: torch allocates it below every mode.

    Checkpointing keeps one a block (`preserve_rng_state`), 5,056 bytes each.
    """
    original = torch.get_rng_state

    def get_rng_state() -> torch.Tensor:
        state = original()
        adopt(state)
        return state

    torch.get_rng_state = torch.random.get_rng_state = get_rng_state
    try:
        yield
    finally:
        torch.get_rng_state = torch.random.get_rng_state = original
