"""What a CUDA process holds outside its allocator, read from `data/cuda_context.toml`: a range, never one figure."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class ContextMemory:
    """Bytes of the CUDA context and of loaded kernels. Collectives (NCCL) take more, for each communicator.

    Attributes:
        low_bytes, high_bytes: from right after CUDA is initialised to after the first kernels are loaded.
        source: where they were measured.
    """

    low_bytes: int
    high_bytes: int
    source: str

    def device_bytes(self, reserved_bytes: int) -> tuple[int, int]:
        """What `nvidia-smi` shows for a process that has reserved so much, low and high.

        >>> low, high = cuda_context().device_bytes(10 << 30)
        >>> low > 10 << 30
        True
        """
        return reserved_bytes + self.low_bytes, reserved_bytes + self.high_bytes


def cuda_context() -> ContextMemory:
    """The range that was measured."""
    path = resources.files("torchledger.memory").joinpath("data/cuda_context.toml")
    rows = tomllib.loads(path.read_text(encoding="utf-8"))
    created, loaded = rows["created"], rows["loaded"]
    return ContextMemory(created["bytes"], loaded["bytes"], loaded["source"])
