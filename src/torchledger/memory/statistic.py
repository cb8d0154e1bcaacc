"""Quantities that go up and down, with the most they reached."""

from __future__ import annotations


class Statistic:
    """A quantity now, and its peak since the last `reset_peak`."""

    __slots__ = ("current", "peak")

    def __init__(self, current: int = 0) -> None:
        self.current = current
        self.peak = current

    def add(self, amount: int) -> None:
        """Change it by `amount`, which may be negative."""
        self.current += amount
        if self.current > self.peak:  # noqa: PLR1730 - twice as fast as max(), where most of the time goes
            self.peak = self.current

    def reset_peak(self) -> None:
        """Forget everything above what it is now (`torch.cuda.reset_peak_memory_stats`)."""
        self.peak = self.current


class AllocatorStatistics:
    """What `torch.cuda.memory_stats` counts, under its names less `_bytes.all`.

    Attributes:
        requested: bytes that callers asked for and have not given back.
        allocated: bytes of the blocks that callers hold; rounding and unsplit remainders count.
        active: the same, and blocks that were given back while another stream may still read them.
        reserved: bytes taken from the device.
        inactive_split: free bytes that cannot go back to the device, because their segment holds something else.
            Expandable segments are not counted, as in PyTorch.
        segments: segments taken with `cudaMalloc`; pages of expandable segments are none.
        num_device_allocations, num_device_frees: calls to the device.
        num_retries: how often everything unused was given back before a request succeeded or failed.
    """

    __slots__ = (
        "active",
        "allocated",
        "inactive_split",
        "num_device_allocations",
        "num_device_frees",
        "num_retries",
        "requested",
        "reserved",
        "segments",
    )

    def __init__(self) -> None:
        self.requested = Statistic()
        self.allocated = Statistic()
        self.active = Statistic()
        self.reserved = Statistic()
        self.inactive_split = Statistic()
        self.segments = Statistic()
        self.num_device_allocations = 0
        self.num_device_frees = 0
        self.num_retries = 0

    def reset_peaks(self) -> None:
        """Let all peaks begin again from what is held now."""
        for each in (self.requested, self.allocated, self.active, self.reserved, self.inactive_split, self.segments):
            each.reset_peak()
