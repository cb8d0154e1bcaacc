"""What this machine really delivers: matmul FLOP/s by size and format, bytes per second, seconds per operation.

Every figure is the best of several repetitions: on a shared machine the best is what the hardware does, the rest is
what the neighbours do.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator

import torch

from torchledger.machine.profile import MachineProfile
from torchledger.meter.device import facts

_FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32}
#: Square matmuls from the size where dispatch dominates to the size where nothing but the units does.
_SIZES = {"cpu": (32, 64, 128, 256, 512, 1024, 2048), "cuda": (128, 256, 512, 1024, 2048, 4096, 8192)}
#: torch's FP8 product on a CPU takes one number after the other at a rate that hangs on no size: 64³ take 10 to 30 ms.
_FP8_SIZES = (32, 64)
_KIBIBYTE, _MEBIBYTE = 2**10, 2**20
#: Sizes of one operand. glibc gives blocks from 32 MiB on back to the system at once, so that each new one costs its
#: page faults again (mallopt(3), M_MMAP_THRESHOLD): the points at 31 and 33 MiB stand on both sides of that step.
_OPERAND_BYTES = (
    *(64 * _KIBIBYTE, 256 * _KIBIBYTE, _MEBIBYTE, 4 * _MEBIBYTE, 16 * _MEBIBYTE),
    *(31 * _MEBIBYTE, 33 * _MEBIBYTE, 128 * _MEBIBYTE),
)
#: Operands are taken in turn out of so many bytes, more than caches hold: a step does not find its operands there.
_POOL_BYTES = 96 * _MEBIBYTE
_MOST_OPERANDS = 1000


def calibrate(
    device: torch.device,
    *,
    formats: Iterable[str] = ("fp32", "bf16"),
    budget_s: float = 4.0,
    on_progress: Callable[[int, int, str], None] | None = None,
) -> MachineProfile:
    """Measure a machine profile.

    Args:
        device: where to measure.
        formats: number formats whose matmul is measured; `fp8` on a CPU alone, of E4M3 operands.
        budget_s: seconds to spend, about; each figure gets an equal share.
        on_progress: told (done, total, what) before each figure.

    Returns:
        The profile, for the thread count that is set now.
    """
    sizes = _SIZES["cuda" if device.type == "cuda" else "cpu"]
    jobs = [(name, size) for name in formats for size in (_FP8_SIZES if name == "fp8" else sizes)]
    num_figures = len(jobs) + len(_OPERAND_BYTES) + 3
    share_s = budget_s / num_figures
    tell = on_progress or (lambda _done, _total, _what: None)
    matmul: dict[str, list[tuple[int, float]]] = {}
    for done, (name, size) in enumerate(jobs):
        tell(done, num_figures, "measuring matmuls")
        flops = 2 * size**3
        matmul.setdefault(name, []).append((flops, flops / _matmul_s(device, name, size, share_s)))
    bandwidth = []
    for done, size_bytes in enumerate(_OPERAND_BYTES, len(jobs)):
        tell(done, num_figures, "measuring memory")
        bandwidth.append((2 * size_bytes, 2 * size_bytes / _addition_s(device, size_bytes, share_s)))
    tell(num_figures - 3, num_figures, "measuring operations")
    return MachineProfile(
        device=facts(device).name,
        num_threads=torch.get_num_threads(),
        torch_version=torch.__version__,
        measured_at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        matmul={name: tuple(points) for name, points in matmul.items()},
        bandwidth=tuple(bandwidth),
        in_place_bytes_per_s=_in_place_rate(device, share_s),
        operation_s=_operation_s(device, share_s),
        transcendental_s=_transcendental_s(device, share_s),
    )


def best_s(run: Callable[[], object], device: torch.device, budget_s: float, *, least: int = 3) -> float:
    """Shortest wall time of one run within a time budget, after one run to warm up.

    Args:
        run: what to time.
        device: waited for before the clock is read, where it works asynchronously.
        budget_s: stop after this many seconds.
        least: repetitions to make even when the budget is spent.
    """
    run()
    _wait(device)
    best = float("inf")
    end = time.perf_counter() + budget_s
    count = 0
    while count < least or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        _wait(device)
        best = min(best, time.perf_counter() - start)
        count += 1
    return best


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def _pool(device: torch.device, shape: tuple[int, ...], dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """Tensors of ones, in turn, out of more of them than the caches hold."""
    size_bytes = math.prod(shape) * dtype.itemsize
    count = min(_MOST_OPERANDS, max(2, _POOL_BYTES // size_bytes))
    return itertools.cycle([torch.ones(shape, dtype=dtype, device=device) for _ in range(count)])


def _matmul_s(device: torch.device, number_format: str, size: int, budget_s: float) -> float:
    if number_format == "fp8":
        return _fp8_s(device, size, budget_s)
    operands = _pool(device, (size, size), _FORMATS[number_format])
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if number_format == "tf32" else "highest")
    try:
        return best_s(lambda: torch.mm(next(operands), next(operands)), device, budget_s)
    finally:
        torch.set_float32_matmul_precision(before)


def _fp8_s(device: torch.device, size: int, budget_s: float) -> float:
    """Seconds of a product of E4M3 numbers with sums in FP32 and a result in bfloat16, as FP8 training has them."""
    left, right = (torch.ones(size, size, device=device).to(torch.float8_e4m3fn) for _ in range(2))
    scale = torch.ones((), device=device)

    def run() -> torch.Tensor:
        product: torch.Tensor = torch._scaled_mm(  # noqa: SLF001  # torch has no other name for it
            left, right.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16
        )
        return product

    return best_s(run, device, budget_s)


def _addition_s(device: torch.device, size_bytes: int, budget_s: float) -> float:
    """Seconds of x + 1 on float32 tensors of `size_bytes` each."""
    operands = _pool(device, (size_bytes // 4,), torch.float32)
    return best_s(lambda: torch.add(next(operands), 1.0), device, budget_s)


def _in_place_rate(device: torch.device, budget_s: float) -> float:
    """Bytes read plus bytes written per second by x += 1 on a float32 tensor far beyond the caches."""
    x = torch.ones(_POOL_BYTES // 4, device=device)
    return 2 * _POOL_BYTES / best_s(lambda: x.add_(1.0), device, budget_s)


def _operation_s(device: torch.device, budget_s: float) -> float:
    """Seconds that one operation on a handful of elements takes, forward or backward: dispatch and autograd."""
    x = torch.ones(8, device=device, requires_grad=True)
    repeats = 100

    def chain() -> None:
        y = x
        for _ in range(repeats):
            y = y * 1.0
        y.backward(torch.ones_like(y))  # type: ignore[no-untyped-call]
        x.grad = None

    return best_s(chain, device, budget_s) / (2 * repeats)


def _transcendental_s(device: torch.device, budget_s: float) -> float:
    """Seconds an exponential takes beyond moving its bytes, on a tensor that stays in the cache."""
    x = torch.zeros(_MEBIBYTE // 2, device=device)
    y = torch.empty_like(x)
    exponential_s = best_s(lambda: torch.exp(x, out=y), device, budget_s)
    addition_s = best_s(lambda: torch.add(x, 1.0, out=y), device, budget_s)
    return max(0.0, exponential_s - addition_s) / x.numel()
