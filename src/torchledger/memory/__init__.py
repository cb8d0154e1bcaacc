"""Peak memory: the timeline of a run's allocations and frees, its live set and its peak, by part and by tensor.

Nothing here knows torch: the tracer fills a `Timeline` from a run on no memory, the meter from a real one, and their
peaks compare byte for byte.
"""

from torchledger.memory.rows import TimelineFormatError, from_json, to_dict, to_json
from torchledger.memory.timeline import PARTS, Block, Event, Part, Peak, Timeline

__all__ = [
    "PARTS",
    "Block",
    "Event",
    "Part",
    "Peak",
    "Timeline",
    "TimelineFormatError",
    "from_json",
    "to_dict",
    "to_json",
]
