"""The machine at hand: which processor, how many cores, how much free memory. `machine` matches the names read here."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil
import torch

DeviceName = Literal["auto", "cpu", "cuda", "mps"]


class DeviceError(ValueError):
    """The device that was asked for is not there."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What the system tells about a device.

    Attributes:
        kind: `cpu`, `cuda` or `mps`.
        name: the processor's own name.
        num_cores: cores this process may run on (CPU), or multiprocessors (CUDA).
        total_bytes: memory as the driver or the control group reports it.
        free_bytes: memory that can still be taken without swapping.
        has_bf16_units: whether it multiplies BF16 in hardware; `None` unknown.
    """

    kind: str
    name: str
    num_cores: int
    total_bytes: int
    free_bytes: int
    has_bf16_units: bool | None


def resolve(device: DeviceName) -> torch.device:
    """The torch device for a name; `auto` takes CUDA, then MPS, then the CPU.

    Raises:
        DeviceError: the named device is not available in this build or on this machine.
    """
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        device = "cuda" if available["cuda"] else "mps" if available["mps"] else "cpu"
    if device not in available:
        raise DeviceError(f"unknown device {device!r}; choose auto, cpu, cuda or mps")
    if not available[device]:
        raise DeviceError(f"device {device!r} is not available here (torch {torch.__version__}); use auto or cpu")
    return torch.device(device)


def facts(device: torch.device) -> DeviceFacts:
    """Read the facts of a device off the system."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        free_bytes, _ = torch.cuda.mem_get_info(device)
        return DeviceFacts(
            kind="cuda",
            name=properties.name,
            num_cores=properties.multi_processor_count,
            total_bytes=properties.total_memory,
            free_bytes=free_bytes,
            has_bf16_units=torch.cuda.is_bf16_supported(including_emulation=False),
        )
    total_bytes, free_bytes = _memory()
    name = _processor_name()
    flags = _processor_flags()
    bf16 = bool(flags & {"avx512_bf16", "amx_bf16", "bf16"}) if flags else None
    return DeviceFacts(device.type, name, _num_cores(), total_bytes, free_bytes, bf16)


def resident_bytes() -> int:
    """Resident memory of this process."""
    return int(psutil.Process().memory_info().rss)


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def _memory() -> tuple[int, int]:
    """Total and free bytes, the tighter of the machine's and the control group's (version 2) limits."""
    machine = psutil.virtual_memory()
    total_bytes, free_bytes = int(machine.total), int(machine.available)
    limit, used = _group_bytes("memory.max"), _group_bytes("memory.current")
    if limit is not None and limit < total_bytes:
        total_bytes = limit
        free_bytes = min(free_bytes, max(0, limit - (used or 0)))
    return total_bytes, free_bytes


def _group_bytes(name: str) -> int | None:
    try:
        text = Path("/sys/fs/cgroup", name).read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _cpuinfo(field: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == field), "")


def _processor_name() -> str:
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _processor_flags() -> set[str]:
    return set((_cpuinfo("flags") or _cpuinfo("Features")).split())
