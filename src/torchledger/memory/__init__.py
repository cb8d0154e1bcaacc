"""Peak memory: the timeline of a run's allocations and frees, its live set and its peak, by part and by tensor.

Nothing here knows torch: the tracer fills a `Timeline` from a run on no memory, the meter from a real one, and their
peaks compare byte for byte. `CachingAllocator` models PyTorch's CUDA caching allocator; `reserve` runs a timeline
through it, `replay` runs a recorded memory snapshot through it.
"""

from torchledger.memory.allocator import CachingAllocator, DeviceOutOfMemory
from torchledger.memory.context import ContextMemory, cuda_context
from torchledger.memory.replay import Replayed, replay
from torchledger.memory.reserve import Amounts, Failure, Reserved, Workspace, reserve
from torchledger.memory.rows import TimelineFormatError, from_json, to_dict, to_json
from torchledger.memory.settings import AllocatorSettings, AllocatorSettingsError
from torchledger.memory.snapshot import DeviceRecord, SnapshotError, read_snapshot
from torchledger.memory.timeline import PARTS, Block, Event, Part, Peak, Timeline

__all__ = [
    "PARTS",
    "AllocatorSettings",
    "AllocatorSettingsError",
    "Amounts",
    "Block",
    "CachingAllocator",
    "ContextMemory",
    "DeviceOutOfMemory",
    "DeviceRecord",
    "Event",
    "Failure",
    "Part",
    "Peak",
    "Replayed",
    "Reserved",
    "SnapshotError",
    "Timeline",
    "TimelineFormatError",
    "Workspace",
    "cuda_context",
    "from_json",
    "read_snapshot",
    "replay",
    "reserve",
    "to_dict",
    "to_json",
]
