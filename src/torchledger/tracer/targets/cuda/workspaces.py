"""Memory that cuBLAS keeps for its kernels: one workspace a handle and stream, from its first product to the end.

The autograd engine runs on a thread of its own, which has a handle of its own: a process that trains keeps two.
"""

from __future__ import annotations

import functools
import tomllib
from importlib import resources
from typing import Any

from torchledger.tracer.storages import Storages


@functools.cache
def _facts() -> dict[str, Any]:
    facts: dict[str, Any] = tomllib.loads(resources.files(__package__).joinpath("workspaces.toml").read_text("utf-8"))
    return facts["cublas"]  # type: ignore[no-any-return]  # a table of the file


def cublas_workspace_bytes(capability: tuple[int, int]) -> int:
    """Bytes of one cuBLAS workspace on a chip of this compute capability.

    >>> cublas_workspace_bytes((8, 0)) == 2 * 4096 * 1024 + 8 * 16 * 1024
    True
    >>> cublas_workspace_bytes((9, 0)) == 32 * 1024 * 1024
    True
    """
    facts = _facts()
    return int(facts["wide_bytes"] if capability[0] in facts["wide_capabilities"] else facts["bytes"])


class Workspaces:
    """Writes workspaces into the step's memory when an operation first needs them."""

    def __init__(self, storages: Storages, capability: tuple[int, int]) -> None:
        self._storages = storages
        self._num_bytes = cublas_workspace_bytes(capability)
        self._operations = frozenset(_facts()["operations"])
        self._kept: set[tuple[bool, str]] = set()

    def after_call(self, func: Any, call: int, *, in_engine: bool) -> None:
        """An operation has run.

        Args:
            func: the operation.
            call: index of its call.
            in_engine: whether the autograd engine runs it.
        """
        if func.__name__.partition(".")[0] not in self._operations:
            return
        key = in_engine, self._storages.stream
        if key not in self._kept:
            self._kept.add(key)
            entry = self._storages.allocate_unseen(
                self._num_bytes, op="cublas_workspace", module="", source="", call=call
            )
            entry.part = "workspace"
            entry.shape = (self._num_bytes,)
