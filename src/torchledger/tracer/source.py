"""Which line of the user's code an operation comes from."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from types import CodeType, FrameType, TracebackType

import torch

# Code of these is machinery, not the user's: torch, this room, generated code, and libraries that wrap tensor code.
_MACHINERY_ROOTS = (str(Path(torch.__file__).parent), str(Path(__file__).parent), str(contextlib.__file__), "<")
# An audit runs steps of its own: what calls it did not ask for an operation of theirs.
_AUDITS = str(Path(__file__).parents[1] / "auditor")
_OF_AN_AUDIT = "audit"
_MACHINERY_PACKAGES = ("/einops/", "/jaxtyping/", "/beartype/")
# Code object -> `folder/file.py:`, or "" for machinery, or that it is of an audit.
_prefixes: dict[CodeType, str] = {}


def current_source() -> str:
    """`folder/file.py:12` of the innermost frame that is the user's, "" where there is none."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # the only cheap way to a frame
    is_looking = True  # an audit's own eye is innermost
    while frame is not None:
        prefix = _prefix(frame.f_code)
        if prefix == _OF_AN_AUDIT and not is_looking:
            return ""
        if prefix and prefix != _OF_AN_AUDIT:
            return prefix + str(frame.f_lineno)
        is_looking = is_looking and prefix == _OF_AN_AUDIT
        frame = frame.f_back
    return ""


def source_of(traceback: TracebackType | None) -> str:
    """The innermost line of the user's code in a traceback."""
    found = ""
    while traceback is not None:
        prefix = _prefix(traceback.tb_frame.f_code)
        if prefix and prefix != _OF_AN_AUDIT:
            found = prefix + str(traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def _prefix(code: CodeType) -> str:
    prefix = _prefixes.get(code)
    if prefix is None:
        filename = code.co_filename
        machinery = filename.startswith(_MACHINERY_ROOTS) or any(part in filename for part in _MACHINERY_PACKAGES)
        place = _OF_AN_AUDIT if filename.startswith(_AUDITS) else "/".join(Path(filename).parts[-2:]) + ":"
        prefix = _prefixes[code] = "" if machinery else place
    return prefix
