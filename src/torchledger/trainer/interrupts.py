"""Ctrl-C, SIGTERM and a terminal that hangs up, as a flag that is read between two steps: nothing is cut in two."""

import os
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["Interrupts"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, *(getattr(signal, name) for name in ("SIGHUP",) if hasattr(signal, name)))

#: Who starts several processes passes a signal on to each, which a terminal has sent them already: it is the same one.
ECHO_S = 10.0


class Interrupts:
    """While inside, the first signal is noted and the second does what it did before (Ctrl-C raises).

    Outside the main thread Python allows no handlers; then nothing is noted. Where a hang-up is ignored (`nohup`), it
    stays so.

    Of several processes each notes its own, and all act on what they agree on: another signal within ten seconds of the
    first is its echo, a later one does what it did before.

    Args:
        shared: whether there are several.

    Attributes:
        noted: number of the signal that this process has got, or nothing.
    """

    def __init__(self, *, shared: bool = False) -> None:
        self.noted: int | None = None
        self._shared = shared
        self._agreed: int | None = None
        self._noted_at = 0.0
        self._before: dict[int, Any] = {}

    @property
    def received(self) -> int | None:
        """Number of the signal to act on, or nothing: this process's own, or what all of them have agreed on."""
        return self._agreed if self._shared else self.noted

    def agree(self, number: int) -> None:
        """Several processes have told each other: act on this signal; 0 is none."""
        self._agreed = number or self._agreed

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS if _is_heard(number)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A launcher that sees the first of several processes end passes the signal on to those that have yet to say so.
        if not (self._shared and self.received):
            self._restore()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if not self._shared:
            self.noted = number
            self._restore()
        elif self.noted is None:
            self.noted, self._noted_at = number, time.monotonic()
        elif time.monotonic() - self._noted_at > ECHO_S:
            self._restore()
            os.kill(os.getpid(), number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}


def _is_heard(number: int) -> bool:
    """Whether to note a signal: Ctrl-C and SIGTERM always (a shell's background jobs are begun ignoring the first)."""
    return number in {signal.SIGINT, signal.SIGTERM} or signal.getsignal(number) is not signal.SIG_IGN
