"""The number formats that matmuls run in: what a device has, how torch is put into one, how the faster is timed."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, get_args

import torch

from torchledger.meter import set_threads

__all__ = [
    "BUILT",
    "Precision",
    "PrecisionError",
    "autocast",
    "best_time",
    "best_times",
    "require_units",
    "tensor_float_32",
    "unbuilt_words",
]

Precision = Literal["fp32", "tf32", "bf16", "fp16", "bf16-master", "bf16-moments", "bf16-pure", "fp8"]
#: Every precision that this trainer runs, somewhere.
BUILT: tuple[str, ...] = get_args(Precision)

_AMPERE = (8, 0)  # compute capability of the first GPUs with TF32 (NVIDIA A100 whitepaper, 2020)
_ADA = (8, 9)  # of the first with FP8 (NVIDIA Ada GPU architecture whitepaper, 2022), which torch._scaled_mm asks for


class PrecisionError(ValueError):
    """A precision that cannot be had on this device; the message says why, and what can."""


def autocast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Around a forward pass: `bf16` and `fp16` leave parameters in FP32, and torch casts at each matmul.

    Where parameters are stored in 16 bit there is nothing to cast.

    Raises:
        PrecisionError: a precision that this trainer does not run.
    """
    if precision not in BUILT:
        raise PrecisionError(unbuilt_words(precision))
    if precision == "tf32":
        return tensor_float_32()
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype=dtype)


@contextmanager
def tensor_float_32() -> Iterator[None]:
    """Matmuls of FP32 operands run in TF32 in here: 10 bits of their 23 behind the point, sums in FP32.

    The backward pass too has to be in here: it is a switch of the process, no property of a tensor.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def require_units(asked: str, device: torch.device) -> None:
    """Refuse a format that nothing on the device computes in, or only so slowly that nobody wants it.

    FP8 on a CPU is let through: torch's products there, one number after the other with sums in FP32, are hundreds of
    times slower and the same arithmetic, so that what it does to a small model can be seen without a GPU.

    Raises:
        PrecisionError: fp16 on a CPU, where it is many times slower than fp32 (2048³ matmul, two Zen 4 cores: 3 against
            195 GFLOP/s); tf32 and fp8 on a GPU without units for it.
    """
    if asked == "fp16":
        if device.type == "cpu":
            raise PrecisionError(
                "fp16 cannot be trained on a CPU: torch's fp16 kernels there are many times slower than its fp32 ones; "
                "use bf16 or fp32"
            )
        if device.type != "cuda":
            raise PrecisionError(f"fp16 needs loss scaling, which torch does on CUDA, not on {device.type}; use fp32")
    if asked == "tf32" and (device.type != "cuda" or torch.cuda.get_device_capability(device) < _AMPERE):
        raise PrecisionError(
            f"tf32 is a mode of the matrix units of CUDA GPUs from Ampere on; this {device.type} device has none: "
            "use fp32 or bf16"
        )
    if asked == "fp8" and device.type != "cpu":
        if device.type != "cuda" or torch.version.hip is not None:
            kind = device.type if torch.version.hip is None else "ROCm"
            raise PrecisionError(f"fp8 is built on torch's products for CUDA GPUs; {kind} has none of them: use bf16")
        if (found := torch.cuda.get_device_capability(device)) < _ADA:
            raise PrecisionError(
                f"fp8 needs matrix units that CUDA GPUs have from compute capability {_ADA[0]}.{_ADA[1]} on (Ada, "
                f"Hopper, Blackwell); this one has {found[0]}.{found[1]}: use bf16 or bf16-master"
            )


def unbuilt_words(precision: str) -> str:
    """What is told of a precision that this trainer does not run."""
    built = ", ".join(BUILT)
    return f"precision {precision} is known to planner and formulas, this trainer does not run it; it runs {built}"


def best_time(run: Callable[[], object], budget_s: float) -> float:
    """Least CPU seconds of `run` on one thread: `best_times` of it alone."""
    return best_times([run], budget_s)[0]


def best_times(runs: Sequence[Callable[[], object]], budget_s: float) -> tuple[float, ...]:
    """Least CPU seconds of each of `runs` on one thread, taken in turn: after one to warm up at least two to measure.

    No further turns begin once a budget is spent for each.

    A choice must not hang on what else the machine does: two threads that wait for each other slow down several times
    when another process wants their cores, and a choice that flips gives other bits. CPU seconds of one thread stay
    within about a tenth under load, and a slow second of the machine falls on all that are taken in turn.

    Args:
        runs: what is timed.
        budget_s: CPU seconds for each of them.
    """
    threads = torch.get_num_threads()
    set_threads(1)
    try:
        for run in runs:
            run()
        end, count = time.process_time() + budget_s * len(runs), 0
        best = [float("inf")] * len(runs)
        while count < 2 or time.process_time() < end:
            for index, run in enumerate(runs):
                begin = time.process_time()
                run()
                best[index] = min(best[index], time.process_time() - begin)
            count += 1
    finally:
        set_threads(threads)
    return tuple(best)
