"""How much memory this process takes, as the operating system counts it."""

import sys
import time
from typing import NamedTuple

import psutil

__all__ = ["Resident", "ResidentGauge", "peak_resident_bytes", "resident_bytes"]

_PROCESS = psutil.Process()
EVERY_S = 0.25  # the kernel adds up every thread for an answer: up to 2 ms on a busy machine, 5 % of a small step


def resident_bytes() -> int:
    """Resident memory now."""
    return int(_PROCESS.memory_info().rss)


def peak_resident_bytes() -> int:
    """Most resident memory so far."""
    return _peak(resident_bytes())


def _peak(now: int) -> int:
    if sys.platform == "win32":
        return int(_PROCESS.memory_info().peak_wset)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak = peak if sys.platform == "darwin" else peak * 1024  # Linux counts in KiB
    return max(peak, now)  # and updates it a little late


class Resident(NamedTuple):
    """Resident bytes: `now`, and the most so far (`peak`), which the kernel keeps, so that reading late misses none."""

    now: int
    peak: int


class ResidentGauge:
    """Reads resident memory at most every quarter of a second, and tells the last reading in between."""

    def __init__(self) -> None:
        self._last: Resident | None = None
        self._read_at = 0.0

    def read(self) -> Resident:
        """The figures, a quarter of a second old at most."""
        now = time.monotonic()
        if self._last is None or now - self._read_at >= EVERY_S:
            held = resident_bytes()
            self._last, self._read_at = Resident(held, _peak(held)), now
        return self._last
