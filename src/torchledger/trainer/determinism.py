"""Deterministic mode: an operation that does not repeat bit for bit is refused, memory not yet written is filled."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from torchledger.trainer.errors import Nondeterministic

__all__ = ["deterministic", "nondeterministic"]


@contextlib.contextmanager
def deterministic(enabled: bool) -> Iterator[None]:
    """While inside, torch refuses what does not repeat, and fills what `torch.empty` gives with NaN.

    The fill lets a kernel that reads what nobody wrote fail at once and the same way each time. Afterwards torch is
    set as before. On CUDA, cuBLAS takes the variable CUBLAS_WORKSPACE_CONFIG besides (set by who starts the process).

    Args:
        enabled: no changes nothing.
    """
    if not enabled:
        yield
        return
    fill: Any = torch.utils.deterministic  # a module whose one attribute it makes up as it is asked
    was_on, was_warning = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    was_filling, was_searching = fill.fill_uninitialized_memory, torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True)
    fill.fill_uninitialized_memory = True
    torch.backends.cudnn.benchmark = False  # it takes the kernel that happens to be fastest
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was_on, warn_only=was_warning)
        fill.fill_uninitialized_memory = was_filling
        torch.backends.cudnn.benchmark = was_searching


def nondeterministic(error: BaseException, step: int | None) -> Nondeterministic | None:
    """The error in our words if torch refused an operation that does not repeat, else nothing.

    torch raises a plain RuntimeError, known by its words only.
    """
    text = str(error)
    if "deterministic" not in text or not torch.are_deterministic_algorithms_enabled():
        return None
    return Nondeterministic(text.partition(". ")[0].strip(), step)
