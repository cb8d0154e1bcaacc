"""Ctrl-C and SIGTERM as a flag that is read between two steps, so that nothing is cut in the middle."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["Interrupts"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While inside, the first signal is noted and the second does what it did before (Ctrl-C raises).

    Outside the main thread Python allows no handlers; then nothing is noted.

    Attributes:
        received: number of the signal, or nothing.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.received = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
