"""The ledger by running: clock, allocator, kernel scratch, and what this machine really delivers.

Nothing here predicts. What is measured is said to be measured, and how.
"""

from torchledger.meter.allocator import Allocations, allocations
from torchledger.meter.calibrate import best_s, calibrate
from torchledger.meter.device import DeviceError, DeviceFacts, facts, resident_bytes, resolve
from torchledger.meter.heap import keep_heap, kept_heap
from torchledger.meter.kernel_time import kernel_seconds
from torchledger.meter.scratch import Scratch, probe
from torchledger.meter.threads import set_threads

__all__ = [
    "Allocations",
    "DeviceError",
    "DeviceFacts",
    "Scratch",
    "allocations",
    "best_s",
    "calibrate",
    "facts",
    "keep_heap",
    "kept_heap",
    "kernel_seconds",
    "probe",
    "resident_bytes",
    "resolve",
    "set_threads",
]
