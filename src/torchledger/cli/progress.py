"""A bar for work of known size, drawn on stderr once it has taken a second; one line now and then in a log."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TextIO

from torchledger.units import format_duration, format_percent
from torchledger.view.terminal import bar

_ERASE = "\r\x1b[K"
_PATIENCE_S = 1.0
_LOG_EVERY_S = 10.0


class Progress:
    """Called with (done, in all, what): draws a bar, the share and the time left.

    Args:
        stream: where to draw; stderr where nothing is given.
        on_terminal: whether lines may be overwritten; nothing asks the stream.
        quiet: draw nothing.
        foretells: whether the time left is told: not where pieces of work are so unequal that nothing tells it.
    """

    def __init__(
        self,
        *,
        stream: TextIO | None = None,
        on_terminal: bool | None = None,
        quiet: bool = False,
        foretells: bool = True,
    ) -> None:
        self._stream = stream or sys.stderr
        self._overwrites = self._stream.isatty() if on_terminal is None else on_terminal
        self._quiet = quiet
        self._foretells = foretells
        self._what = ""
        self._begin = self._last = 0.0
        self._is_drawn = False

    def __call__(self, done: int, total: int, what: str) -> None:
        """Tell how far it is."""
        now = time.perf_counter()
        if what != self._what:
            self._what, self._begin, self._last = what, now, now
        pause = 0.1 if self._overwrites else _LOG_EVERY_S
        if self._quiet or now - self._begin < _PATIENCE_S or now - self._last < pause or not total:
            return
        self._last = now
        share = done / total
        told = [format_percent(round(share, 3))]
        if self._foretells:
            left = format_duration((now - self._begin) * (1 - share) / share) if share > 0 else "unknown"
            told.append(f"{left} left")
        try:
            if self._overwrites:
                self._stream.write(f"{_ERASE}{what}  {bar(share, 24)}  {'  '.join(told)}")
                self._is_drawn = True
            else:
                self._stream.write(f"{what}: {', '.join(told)}\n")
            self._stream.flush()
        except OSError:  # nobody reads any more: the work is worth more than being watched
            self._quiet = True

    def close(self) -> None:
        """Take the bar away."""
        if self._is_drawn:
            with contextlib.suppress(OSError):
                self._stream.write(_ERASE)
                self._stream.flush()
            self._is_drawn = False
