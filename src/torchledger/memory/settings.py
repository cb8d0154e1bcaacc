"""The allocator's options, as `PYTORCH_ALLOC_CONF` spells them, and the sizes that follow from them.

Errors: `AllocatorSettingsError` - the text is no list of options, an option is unknown, or its value is out of range.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from torchledger.memory.constants import CUDA
from torchledger.memory.option import Option, split_options

MIB = 1 << 20


class AllocatorSettingsError(ValueError):
    """The text is no list of options, an option is unknown, or its value is out of range."""


@dataclass(frozen=True, slots=True)
class AllocatorSettings:
    """What `PYTORCH_ALLOC_CONF` sets, with the defaults of PyTorch 2.13.

    Attributes:
        expandable_segments: one growing range of pages a stream and pool, instead of segments.
        max_split_bytes: blocks of at least this size are never split and serve only requests of at least this size;
            `None` splits every block.
        max_non_split_rounding_bytes: by how much such a block may exceed such a request.
        large_segment_bytes: segment for requests above 1 and below 10 MiB, page of large expandable segments.
        roundup_power2_divisions: for each power of two from 1 MiB on, into how many steps sizes are rounded up; 0 not.
        garbage_collection_threshold: share of the allowed memory above which old unused segments go back before a
            new one is asked for; 0 never. Acts only under a memory fraction below 1.
        memory_fraction: share of the device's memory that the allocator allows itself.
        ignored: options that were given and change nothing that is modelled here, such as those of pinned memory.
    """

    expandable_segments: bool = False
    max_split_bytes: int | None = None
    max_non_split_rounding_bytes: int = CUDA.large_segment_bytes
    large_segment_bytes: int = CUDA.large_segment_bytes
    roundup_power2_divisions: tuple[int, ...] = (0,) * CUDA.num_intervals
    garbage_collection_threshold: float = 0.0
    memory_fraction: float = 1.0
    ignored: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> AllocatorSettings:
        """Read the text of `PYTORCH_ALLOC_CONF` (the older `PYTORCH_CUDA_ALLOC_CONF` is written alike).

        >>> AllocatorSettings.parse("expandable_segments:True,max_split_size_mb:128").max_split_bytes
        134217728

        Raises:
            AllocatorSettingsError: PyTorch would refuse the text; the message names the option and what it may be.
        """
        values: dict[str, Any] = {}
        ignored = []
        options = list(split_options(text, AllocatorSettingsError))
        # As in parseArgs: this one is read first, for others have their default or their least value from it.
        options.sort(key=lambda option: option.name != "large_segment_size_mb")
        for option in options:
            if option.name in _IGNORED:
                ignored.append(option.name)
            elif option.name in _READERS:
                values.update(_READERS[option.name](option, values))
            else:
                close = difflib.get_close_matches(option.name, [*_READERS, *_IGNORED], n=1)
                hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(sorted(_READERS))}"
                raise AllocatorSettingsError(f"the allocator has no option {option.name!r}{hint}")
        return cls(**values, ignored=tuple(ignored))

    @property
    def rounds_to_powers(self) -> bool:
        """Whether any size is rounded up to a division of a power of two."""
        return any(self.roundup_power2_divisions)

    def is_oversize(self, num_bytes: int) -> bool:
        """Whether a size is beyond the largest that may be split."""
        return self.max_split_bytes is not None and num_bytes >= self.max_split_bytes

    def round_size(self, num_bytes: int) -> int:
        """Bytes that a request takes: `round_size` of CUDACachingAllocator.cpp.

        >>> AllocatorSettings().round_size(1), AllocatorSettings().round_size(513)
        (512, 1024)
        """
        quantum = CUDA.min_block_bytes
        if num_bytes < quantum:
            return quantum
        if self.rounds_to_powers:
            divisions = self.divisions_at(num_bytes)
            if divisions > 0 and num_bytes > quantum * divisions:
                return _next_division(num_bytes, divisions)
        return -(-num_bytes // quantum) * quantum

    def divisions_at(self, num_bytes: int) -> int:
        """Steps between the two powers of two around a size (`roundup_power2_divisions` of AllocatorConfig.cpp)."""
        interval = num_bytes.bit_length() - CUDA.first_interval_bytes.bit_length()
        return self.roundup_power2_divisions[min(max(interval, 0), CUDA.num_intervals - 1)]

    def segment_size(self, size: int) -> int:
        """Bytes asked from the device for a rounded size: `get_allocation_size` of CUDACachingAllocator.cpp.

        >>> AllocatorSettings().segment_size(512), AllocatorSettings().segment_size(11 << 20)
        (2097152, 12582912)
        """
        if size <= CUDA.small_request_bytes:
            return CUDA.small_segment_bytes
        if size < CUDA.min_large_request_bytes:
            return self.large_segment_bytes
        return -(-size // CUDA.large_rounding_bytes) * CUDA.large_rounding_bytes

    def page_size(self, *, is_small: bool) -> int:
        """Bytes of a page of an expandable segment."""
        return CUDA.small_segment_bytes if is_small else self.large_segment_bytes


def _next_division(size: int, divisions: int) -> int:
    """The next of `divisions` equal steps between the powers of two around a size; powers of two stay as they are.

    `roundup_power2_next_division` of CUDACachingAllocator.cpp: 1,200 with 4 divisions is 1,280.
    """
    if size <= 4 or divisions <= 1 or size & (size - 1) == 0:
        return size
    below = 1 << (size.bit_length() - 1)
    step = below >> (divisions.bit_length() - 1)
    return -(-size // step) * step if step else 2 * below


_Read: TypeAlias = Callable[[Option, dict[str, Any]], dict[str, Any]]


def _split(option: Option, values: dict[str, Any]) -> dict[str, Any]:
    least = values.get("large_segment_bytes", CUDA.large_segment_bytes) // MIB
    return {"max_split_bytes": option.integer(least, f"at least {least}") * MIB}


def _rounding(option: Option, values: dict[str, Any]) -> dict[str, Any]:
    least = values.get("large_segment_bytes", CUDA.large_segment_bytes) // MIB
    return {"max_non_split_rounding_bytes": option.integer(least, f"at least {least}") * MIB}


def _large_segment(option: Option, _values: dict[str, Any]) -> dict[str, Any]:
    beyond = CUDA.min_large_request_bytes // MIB
    size = option.integer(beyond + 1, f"more than {beyond}") * MIB
    return {"large_segment_bytes": size, "max_non_split_rounding_bytes": size}


def _expandable(option: Option, _values: dict[str, Any]) -> dict[str, Any]:
    return {"expandable_segments": option.boolean()}


def _garbage(option: Option, _values: dict[str, Any]) -> dict[str, Any]:
    value = option.number()
    if not 0 < value < 1:
        raise option.wrong("between 0 and 1, both excluded")
    return {"garbage_collection_threshold": value}


def _fraction(option: Option, _values: dict[str, Any]) -> dict[str, Any]:
    value = option.number()
    if not 0 <= value <= 1:
        raise option.wrong("from 0 to 1")
    return {"memory_fraction": value}


def _divisions(option: Option, _values: dict[str, Any]) -> dict[str, Any]:
    """One divisor for every size, or a list such as `[256:1,512:2,>:8]` with sizes in MiB."""
    intervals = [0] * CUDA.num_intervals
    if not option.is_list:
        return {"roundup_power2_divisions": (_power_of_two(option, option.value, zero=False),) * len(intervals)}
    last = 0
    for number, (boundary, text) in enumerate(option.pairs()):
        divisions = _power_of_two(option, text, zero=True)
        if boundary == ">":
            intervals[last + 1 :] = [divisions] * (len(intervals) - last - 1)
            continue
        last = min(_power_of_two(option, boundary, zero=False).bit_length() - 1, len(intervals) - 1)
        if number == 0:
            intervals[:last] = [divisions] * last
        intervals[last] = divisions
    return {"roundup_power2_divisions": tuple(intervals)}


def _power_of_two(option: Option, text: str, *, zero: bool) -> int:
    value = int(text) if text.isdecimal() else -1
    if value < 0 or value & (value - 1) or (value == 0 and not zero):
        raise option.wrong("powers of two, as one number or as a list like [256:1,512:2,>:8]")
    return value


def _backend(option: Option, _values: dict[str, Any]) -> dict[str, Any]:
    if option.value != "native":
        raise option.wrong("native, the one backend that is modelled")
    return {}


_READERS: dict[str, _Read] = {
    "backend": _backend,
    "expandable_segments": _expandable,
    "garbage_collection_threshold": _garbage,
    "large_segment_size_mb": _large_segment,
    "max_non_split_rounding_mb": _rounding,
    "max_split_size_mb": _split,
    "per_process_memory_fraction": _fraction,
    "roundup_power2_divisions": _divisions,
}

# Known to PyTorch 2.13 (AllocatorConfig.cpp, CUDAAllocatorConfig.h); they concern pinned host memory, locks, when a
# refusal is reported, and frees during the capture of a graph.
_IGNORED = (
    "graph_capture_record_stream_reuse",
    "pinned_free_catch_all",
    "pinned_max_cached_size_mb",
    "pinned_max_round_threshold_mb",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_use_background_threads",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "throw_on_cudamalloc_oom",
)
