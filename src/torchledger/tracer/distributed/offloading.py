"""FSDP's offloading to the host, where device and host are one: its copies between the two are made all the same.

Everything stands on fake CPU tensors, and FSDP leaves out a copy to where a tensor is already. The target's own rule of
places (a text names a place, a `torch.device` may come from another tensor) tells the copies from the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch


def patches() -> Iterator[tuple[Any, str, Callable[[Any], Any]]]:
    """What stands in for FSDP's functions that copy between host and device."""
    from torch.distributed.fsdp._fully_shard import _fsdp_collectives, _fsdp_param

    yield _fsdp_param.FSDPParam, "all_gather_inputs", _onto_device
    yield _fsdp_collectives, "torch", _Devices


def _onto_device(inputs: property) -> property:
    """Parameters are copied to the device to be gathered."""

    def gathered(parameter: Any) -> Any:
        assert inputs.fget is not None, "torch's property can be read"
        if not parameter.offload_to_cpu:
            return inputs.fget(parameter)
        device, parameter.device = parameter.device, torch.device("cuda")
        try:
            return inputs.fget(parameter)
        finally:
            parameter.device = device

    return property(gathered)


class _Devices:
    """torch, but for a `device` that is the text of its name: FSDP makes one to copy a reduced gradient to the host."""

    device = str

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
