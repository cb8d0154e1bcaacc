"""`Target`: the device that a step is traced for, and everything that it would do differently from the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch

from torchledger.machine import Chip
from torchledger.machine import get as get_chip
from torchledger.tracer.storages import Storages
from torchledger.tracer.targets.answers import optimizers_are_answered
from torchledger.tracer.targets.cuda import AfterCall, running_on_cuda
from torchledger.tracer.targets.cuda.attention_choice import AttentionKernel
from torchledger.tracer.targets.cuda.devices import is_cuda
from torchledger.tracer.targets.spectra import values_without_vectors

TargetName: TypeAlias = Literal["cpu", "cuda"]


@dataclass(frozen=True, slots=True)
class Target:
    """The device that a step is traced for.

    Attributes:
        name: `cpu` or `cuda`.
        chip: which accelerator, where that decides anything (kernels by compute capability).
        attention: the kernel of scaled dot-product attention on CUDA; `None` lets CUDA choose.
    """

    name: TargetName = "cpu"
    chip: Chip | None = None
    attention: AttentionKernel | None = None

    @staticmethod
    def plain(kwargs: dict[str, Any]) -> dict[str, Any]:
        """Keyword arguments of an operation with the CPU, where the fakes stand, for a device of CUDA.

        A function that was imported from torch before a step was traced still asks for one.
        """
        return {**kwargs, "device": torch.device("cpu")} if is_cuda(kwargs["device"]) else kwargs

    @contextlib.contextmanager
    def running(self, storages: Storages, assume: Callable[[str], None]) -> Iterator[AfterCall | None]:
        """While this is on, torch takes the paths it would take on the target, over fake CPU tensors.

        Args:
            storages: where the target writes what it keeps for itself.
            assume: is told of every assumption.

        Yields:
            What is to be told of every operation that has run, on a target that wants to know.
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(optimizers_are_answered(assume))
            stack.enter_context(values_without_vectors())
            if self.name == "cuda":
                yield stack.enter_context(running_on_cuda(storages, self.chip, self.attention, assume))
            else:
                yield None


CPU = Target()


def target(
    name: TargetName | Target = "cpu", chip: Chip | str | None = None, attention: AttentionKernel | None = None
) -> Target:
    """The target of that name.

    Args:
        name: `cpu` or `cuda`; a target is itself.
        chip: an accelerator of the catalog, by name or itself.
        attention: the kernel of scaled dot-product attention on CUDA; `None` lets CUDA choose.

    Raises:
        UnknownChip: no chip of that name.
    """
    if isinstance(name, Target):
        return name
    return Target(name, get_chip(chip) if isinstance(chip, str) else chip, attention)
