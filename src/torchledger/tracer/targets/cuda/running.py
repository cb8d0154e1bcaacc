"""`running_on_cuda`: everything that CUDA does differently, switched on together and off together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from torchledger.machine import Chip
from torchledger.tracer.storages import Storages
from torchledger.tracer.targets.cuda.autocast import autocast_of_cuda
from torchledger.tracer.targets.cuda.capability import capability_of
from torchledger.tracer.targets.cuda.devices import devices_of_cuda
from torchledger.tracer.targets.cuda.presence import cuda_present


@contextlib.contextmanager
def running_on_cuda(storages: Storages, chip: Chip | None) -> Iterator[None]:
    """While this is on, torch takes the paths of CUDA over fake CPU tensors; every global is put back afterwards."""

    def adopt_cast(cast: torch.Tensor) -> None:
        storages.name(cast, "autocast casts")

    capability = capability_of(chip)
    name = f"a GPU of compute capability {capability[0]}.{capability[1]}" if chip is None else chip.name
    num_bytes = 80 << 30 if chip is None else chip.memory_bytes_nominal or 80 << 30
    with contextlib.ExitStack() as stack:
        stack.enter_context(cuda_present(storages, capability=capability, name=name, num_bytes=int(num_bytes)))
        stack.enter_context(devices_of_cuda(storages))
        stack.enter_context(autocast_of_cuda(adopt_cast))
        yield
