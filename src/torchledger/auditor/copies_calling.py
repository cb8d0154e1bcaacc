"""Which call of Python an operation comes from: the function's name and the expression as it is written."""

from __future__ import annotations

import ast
import itertools
import linecache
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType

import torch

from torchledger import tracer

# Frames of these only look; the first one outside them is who called the operation.
_LOOKING = (str(Path(tracer.__file__).parent), str(Path(__file__).parent), str(Path(torch.__file__).parent / "utils"))
_TORCH = (str(Path(torch.__file__).parent), "<")
_LONGEST = 100


@dataclass(frozen=True, slots=True)
class Calling:
    """A call of Python.

    Attributes:
        function: name of the function or method (`contiguous`), of an operator as it is written (`@`); "" where no
            source is at hand.
        code: the user's expression on one line (`x.transpose(1, 2).contiguous()`), "" as above.
    """

    function: str = ""
    code: str = ""


_known: dict[tuple[CodeType, int], Calling] = {}


def calling(frame: FrameType | None) -> Calling:
    """The call that the innermost frame outside torchledger makes, and the user's expression around it.

    Args:
        frame: where the looking stands; frames are searched from it outwards.
    """
    while frame is not None and frame.f_code.co_filename.startswith(_LOOKING):
        frame = frame.f_back
    if frame is None:
        return Calling()
    function = _at(frame).function
    while frame is not None and frame.f_code.co_filename.startswith((*_TORCH, *_LOOKING)):
        frame = frame.f_back
    return Calling(function, _at(frame).code if frame is not None else "")


def _at(frame: FrameType) -> Calling:
    """What the instruction that a frame is at was written as."""
    key = frame.f_code, frame.f_lasti
    found = _known.get(key)
    if found is None:
        found = _known[key] = _read(*key)
    return found


def _read(code: CodeType, instruction: int) -> Calling:
    position = next(itertools.islice(code.co_positions(), instruction // 2, None), (None,) * 4)
    first, last, begin, end = position
    if first is None or last is None or begin is None or end is None:
        return Calling()
    lines = [linecache.getline(code.co_filename, number).encode() for number in range(first, last + 1)]
    if not all(lines):
        return Calling()
    lines[-1] = lines[-1][:end]  # columns count bytes of UTF-8
    lines[0] = lines[0][begin:]
    text = b"".join(lines).decode(errors="replace")
    return Calling(_function(text), _shortened(" ".join(text.split())))


def _function(text: str) -> str:
    try:
        tree = ast.parse(f"({text})", mode="eval").body
    except SyntaxError:
        return ""
    match tree:
        case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
            return name
        case ast.BinOp(op=ast.MatMult()):
            return "@"
        case ast.Subscript():
            return "[]"
        case _:
            return ""


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"...{text[-_LONGEST + 3 :]}"
