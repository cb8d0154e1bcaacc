"""The constants of PyTorch's CUDA caching allocator, read from `data/cuda_allocator.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any


@dataclass(frozen=True, slots=True)
class AllocatorConstants:
    """Sizes in bytes that no option changes, and defaults of those that an option does.

    Attributes:
        min_block_bytes: quantum of all sizes, and the least remainder that the small pool splits off.
        small_request_bytes: the largest request of the small pool; remainders up to it stay in blocks of the large one.
        small_segment_bytes: segment of the small pool, and page of its expandable segments.
        min_large_request_bytes: from here on a request gets a segment of its own size.
        large_rounding_bytes: quantum of such segments.
        large_segment_bytes: segment of large requests below that, and page of the large pool's expandable segments.
        address_space_eighths: addresses of an expandable segment, in eighths of the device's memory.
        first_interval_bytes: where the intervals of `roundup_power2_divisions` begin.
        num_intervals: how many there are.
        source: where the figures stand.
    """

    min_block_bytes: int
    small_request_bytes: int
    small_segment_bytes: int
    min_large_request_bytes: int
    large_rounding_bytes: int
    large_segment_bytes: int
    address_space_eighths: int
    first_interval_bytes: int
    num_intervals: int
    source: str


def _read() -> AllocatorConstants:
    path = resources.files("torchledger.memory").joinpath("data/cuda_allocator.toml")
    rows: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    return AllocatorConstants(**rows.pop("power_of_two"), **rows)


CUDA = _read()
