"""Caches of functions (`functools.lru_cache`) that a traced step filled with fake tensors, emptied again.

Models keep tables of positions there, on the function and not on the module: what a trace leaves in one would be used
by the model's next real run. Caches without fakes are left alone, whatever entered them.
"""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Iterator
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

_CACHED: Any = functools._lru_cache_wrapper  # noqa: SLF001  # its class has no public name
#: How deep in what a function returned a tensor is looked for: a tuple of lists of tensors.
_DEPTH = 3


@contextlib.contextmanager
def without_fakes() -> Iterator[None]:
    """Whatever happens inside, no cache of a function holds a fake tensor afterwards that held none before."""
    try:
        yield
    finally:
        # Neither the caches nor their entries have a door but the garbage collector's.
        for cached in [thing for thing in gc.get_referrers(_CACHED) if type(thing) is _CACHED]:
            if cached.cache_info().currsize and _has_fake(gc.get_referents(cached), _DEPTH):
                cached.cache_clear()


def _has_fake(things: list[Any], depth: int) -> bool:
    for thing in things:
        if type(thing) is FakeTensor:
            return True
        held = list(thing.values()) if type(thing) is dict else thing
        if depth and type(held) in {tuple, list} and _has_fake(held, depth - 1):
            return True
    return False
