"""Where in a program an allocation was made, from the stack that a snapshot keeps with it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
        filename, name = str(frame.get("filename", "")), str(frame.get("name", ""))
        if _is_python(filename, frame):
            if not _LIBRARY.search(filename):
                user = _line(filename, frame, name)
                break
            library = library or _line(filename, frame, name)
        else:
            if not operation and (found := _OPERATION.search(name)):
                operation = found[1]
            if not node and (found := _NODE.search(name)):
                node = found[1]
    if not (user or library or node or operation):
        return _UNKNOWN
    return Origin(user or library, node, operation)


def _is_python(filename: str, frame: Mapping[str, Any]) -> bool:
    return bool(frame.get("line")) and not _NOT_PYTHON.search(filename) and filename not in ("", "??")


def _line(filename: str, frame: Mapping[str, Any], name: str) -> str:
    return f"{_FOLDER.split(filename)[-1]}:{frame['line']} {name}"
