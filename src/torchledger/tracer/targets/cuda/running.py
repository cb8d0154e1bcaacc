"""`running_on_cuda`: everything that CUDA does differently, switched on together and off together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch

from torchledger.machine import Chip
from torchledger.tracer.storages import Storages
from torchledger.tracer.targets.cuda.attention import attention_of_cuda
from torchledger.tracer.targets.cuda.attention_choice import AttentionKernel
from torchledger.tracer.targets.cuda.autocast import autocast_of_cuda
from torchledger.tracer.targets.cuda.capability import capability_of, default_chip
from torchledger.tracer.targets.cuda.devices import devices_of_cuda, stays_on_host
from torchledger.tracer.targets.cuda.flex import flex_attention_of_cuda
from torchledger.tracer.targets.cuda.kernels import kernels_of_cuda
from torchledger.tracer.targets.cuda.optimizers import optimizers_of_cuda
from torchledger.tracer.targets.cuda.presence import cuda_present
from torchledger.tracer.targets.cuda.recurrent import recurrent_layers_of_cuda
from torchledger.tracer.targets.cuda.workspaces import Workspaces

#: Told of an operation that has run: the operation, the index of its call, its operands' storages, its results, and
#: whether autograd's engine ran it.
AfterCall: TypeAlias = Callable[..., None]


@contextlib.contextmanager
def running_on_cuda(
    storages: Storages, chip: Chip | None, attention: AttentionKernel | None, assume: Callable[[str], None]
) -> Iterator[AfterCall]:
    """While this is on, torch takes the paths of CUDA over fake CPU tensors; every global is put back afterwards.

    Args:
        storages: the step's memory.
        chip: which GPU; `None` is the default one, and is told as an assumption.
        attention: the kernel of scaled dot-product attention; `None` lets CUDA choose.
        assume: is told of every assumption.

    Yields:
        What is to be told of every operation that has run.
    """

    def adopt_cast(cast: torch.Tensor) -> None:
        storages.name(cast, "autocast casts")

    if chip is None:
        chip = default_chip()
        assume(f"no chip was named: CUDA's kernels and workspaces are those of an {chip.name}")
    capability = capability_of(chip)
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            cuda_present(storages, capability=capability, name=chip.name, num_bytes=_memory_bytes(chip))
        )
        stack.enter_context(devices_of_cuda(storages))
        stack.enter_context(attention_of_cuda(capability, attention))
        stack.enter_context(flex_attention_of_cuda())
        stack.enter_context(kernels_of_cuda())
        stack.enter_context(recurrent_layers_of_cuda(assume))
        stack.enter_context(optimizers_of_cuda())
        stack.enter_context(autocast_of_cuda(adopt_cast))
        workspaces = Workspaces(storages, capability)

        def after_call(
            func: Any, call: int, operands: list[int], results: list[torch.Tensor], *, in_engine: bool
        ) -> None:
            if not stays_on_host(storages, operands, results):
                workspaces.after_call(func, call, in_engine=in_engine)

        yield after_call


def _memory_bytes(chip: Chip) -> int:
    return int(chip.memory_bytes_reported or chip.memory_bytes_nominal or 0)
