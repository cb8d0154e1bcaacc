"""Snapshots made by the model itself, in the form that PyTorch writes, so that tests need no GPU and no file."""

import pickle

import pytest

from torchledger.memory import AllocatorSettings, CachingAllocator
from torchledger.memory.device import PlainDevice
from torchledger.memory.segment import segments_of

STATES = {"allocated": "active_allocated", "waiting": "active_pending_free", "free": "inactive"}


class Recorder(CachingAllocator):
    """The allocator with a history, like `torch.cuda.memory._record_memory_history`."""

    def __init__(self, text="", capacity_bytes=None):
        self.events = []
        self.is_recording = False
        device = NotingDevice(self, capacity_bytes)
        super().__init__(AllocatorSettings.parse(text), capacity_bytes, device=device)
        self.text = text
        shrink = self.expandable.shrink

        def noted(block):
            device.leaving = block.stream
            shrink(block)

        self.expandable.shrink = noted

    def note(self, action, address, num_bytes, stream="", line=0):  # noqa: D102 - as in the class above it
        if self.is_recording:
            frames = [{"filename": "/home/me/train.py", "line": line, "name": "step"}] if line else []
            self.events.append(
                {"action": action, "addr": address, "size": num_bytes, "stream": stream, "time_us": 0, "frames": frames}
            )

    def malloc(self, num_bytes, stream="", line=0):  # noqa: D102 - as in the class above it
        self.stream = stream
        address = super().malloc(num_bytes, stream)
        self.note("alloc", address, num_bytes, stream, line)
        return address

    def free(self, address):  # noqa: D102 - as in the class above it
        block = self.live[address]
        self.note("free_requested", address, block.requested, block.stream)
        super().free(address)

    def _make_free(self, block):
        self.note("free_completed", block.address, block.requested, block.stream)
        super()._make_free(block)

    def _release(self, block):
        self.device.leaving = block.stream
        super()._release(block)

    def snapshot(self):  # noqa: D102 - as in the class above it
        segments = [
            {
                "device": 0,
                "address": segment.address,
                "total_size": segment.num_bytes,
                "stream": segment.stream,
                "segment_type": "small" if segment.is_small else "large",
                "segment_pool_id": (0, 0),
                "is_expandable": segment.is_expandable,
                "frames": [],
                "blocks": [
                    {
                        "address": block.address,
                        "size": block.num_bytes,
                        "requested_size": block.requested_bytes,
                        "state": STATES[block.state],
                        "frames": [],
                    }
                    for block in segment.blocks
                ],
            }
            for segment in segments_of(self)
        ]
        settings = {"PYTORCH_CUDA_ALLOC_CONF": self.text, "expandable_segments": False, "max_split_size": -1}
        return {"segments": segments, "device_traces": [self.events], "allocator_settings": settings}

    def dump(self, path):  # noqa: D102 - as in the class above it
        path.write_bytes(pickle.dumps(self.snapshot()))
        return path


class NotingDevice(PlainDevice):
    def __init__(self, recorder, capacity_bytes):
        super().__init__(capacity_bytes)
        self.recorder = recorder

    def allocate(self, num_bytes):  # noqa: D102 - as in the class above it
        address = super().allocate(num_bytes)
        if address is not None:
            self.recorder.note("segment_alloc", address, num_bytes, self.recorder.stream)
        return address

    def release(self, address, num_bytes):  # noqa: D102 - as in the class above it
        super().release(address, num_bytes)
        self.recorder.note("segment_free", address, num_bytes, self.leaving)

    def map_pages(self, address, num_bytes):  # noqa: D102 - as in the class above it
        mapped = super().map_pages(address, num_bytes)
        if mapped and address:
            self.recorder.note("segment_map", address, num_bytes, self.recorder.stream)
        return mapped

    def unmap_pages(self, address, num_bytes):  # noqa: D102 - as in the class above it
        super().unmap_pages(address, num_bytes)
        if self.settings_expandable:
            self.recorder.note("segment_unmap", address, num_bytes, self.leaving)

    @property
    def settings_expandable(self):  # noqa: D102 - as in the class above it
        return self.recorder.settings.expandable_segments


@pytest.fixture(scope="session")
def recorder():
    """The class `Recorder`: `recorder(text, capacity_bytes)` is an allocator that can write a snapshot."""
    return Recorder
