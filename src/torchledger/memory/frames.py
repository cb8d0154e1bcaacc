"""Where in a program an allocation was made, from the stack that a snapshot keeps with it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_NODE = re.compile(r"torch::autograd::(?:generated::)?(\w*(?:Backward\d*|AccumulateGrad))::")
_OPERATION = re.compile(r"at::_ops::(\w+?)::(?:call|redispatch)\b")
_LIBRARY = re.compile(r"[/\\](?:site-packages|dist-packages|lib[/\\]python3[.\d]*)[/\\]")
_FOLDER = re.compile(r"[/\\]")
_NOT_PYTHON = re.compile(r"\.(?:cpp|cc|cu|cuh|h|hpp|c|inl)$")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where something happened.

    Attributes:
        line: the user's innermost line, `model.py:101 forward`; the innermost Python line where all are of libraries;
            "" where there is none.
        node: the autograd node that ran, `MulBackward0`; "" outside the backward pass.
        operation: the innermost operation of PyTorch, `index_Tensor`; known only where C++ frames were recorded.
    """

    line: str = ""
    node: str = ""
    operation: str = ""

    @property
    def text(self) -> str:
        """In one line."""
        return self.line or self.node or self.operation or "(not recorded)"


_UNKNOWN = Origin()


def origin_of(frames: Sequence[Mapping[str, Any]]) -> Origin:
    """Read a stack, innermost frame first."""
    library = user = node = operation = ""
    for frame in frames:
        kind, text = _read(str(frame.get("filename", "")), frame.get("line") or 0, str(frame.get("name", "")))
        if kind == "user":
            user = text
            break
        if kind == "library":
            library = library or text
        elif kind == "operation":
            operation = operation or text
        elif kind == "node":
            node = node or text
    if not (user or library or node or operation):
        return _UNKNOWN
    return Origin(user or library, node, operation)


@lru_cache(maxsize=100_000)
def _read(filename: str, line: int, name: str) -> tuple[str, str]:
    """What a frame tells, and of what kind that is; stacks share most of their frames."""
    if line and filename not in ("", "??") and not _NOT_PYTHON.search(filename):
        kind = "library" if _LIBRARY.search(filename) else "user"
        return kind, f"{_FOLDER.split(filename)[-1]}:{line} {name}"
    if found := _OPERATION.search(name):
        return "operation", found[1]
    if found := _NODE.search(name):
        return "node", found[1]
    return "", ""
