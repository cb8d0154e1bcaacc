"""How much memory this process takes, as the operating system counts it."""

import sys

import psutil

__all__ = ["peak_resident_bytes", "resident_bytes"]

_PROCESS = psutil.Process()


def resident_bytes() -> int:
    """Resident memory now."""
    return int(_PROCESS.memory_info().rss)


def peak_resident_bytes() -> int:
    """Most resident memory so far."""
    if sys.platform == "win32":
        return int(_PROCESS.memory_info().peak_wset)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak = peak if sys.platform == "darwin" else peak * 1024  # Linux counts in KiB
    return max(peak, resident_bytes())  # and updates it a little late
