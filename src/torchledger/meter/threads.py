"""How many threads torch's kernels take, set so that fused attention is not slower for it."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path

import torch

__all__ = ["set_threads"]


def set_threads(count: int) -> None:
    """Let the kernels that this thread calls take so many threads; `torch.get_num_threads` tells the number.

    Not by `torch.set_num_threads`, unless there is no other way. It also gives MKL a thread count of its own and turns
    MKL's dynamic mode off, for the whole process, and again for every thread that first calls a kernel afterwards
    (aten/src/ATen/ParallelOpenMP.cpp, `set_num_threads` and `init_num_threads`). A kernel that is parallel by itself
    and multiplies small matrices in each of its threads pays for that: attention on 12 sequences of 64 in 4 heads of 32
    in FP32 on two Zen 4 cores takes 303 us forward and 610 us backward, after `torch.set_num_threads(2)` on two threads
    412 and 830. OpenMP's own count is all that torch, MKL and oneDNN ask for where nothing else was said.
    """
    if count == torch.get_num_threads():
        return
    with contextlib.suppress(OSError, AttributeError):
        # The OpenMP that torch itself is linked to, of several that a process may have.
        ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")).omp_set_num_threads(count)
    if count != torch.get_num_threads():
        torch.set_num_threads(count)
