"""What this machine really delivers: matmul FLOP/s by size and format, bytes per second, seconds per operation.

Every figure is the best of several repetitions: on a shared machine the best is what the hardware does, the rest is
what the neighbours do.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterable

import torch

from torchledger.machine.profile import MachineProfile
from torchledger.meter.device import facts

_FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
#: Square matmuls from the size where dispatch dominates to the size where nothing but the units does.
_SIZES = {"cpu": (32, 64, 128, 256, 512, 1024, 2048), "cuda": (128, 256, 512, 1024, 2048, 4096, 8192)}
_MEBIBYTE = 2**20


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
        formats: number formats whose matmul is measured.
        budget_s: seconds to spend, about; each figure gets an equal share.
        on_progress: told (done, total, what) before each figure.

    Returns:
        The profile, for the thread count that is set now.
    """
    sizes = _SIZES["cuda" if device.type == "cuda" else "cpu"]
    jobs = [(name, size) for name in formats for size in sizes]
    share_s = budget_s / (len(jobs) + 4)
    tell = on_progress or (lambda _done, _total, _what: None)
    matmul: dict[str, list[tuple[int, float]]] = {}
    for done, (name, size) in enumerate(jobs):
        tell(done, len(jobs) + 4, f"{name} matmul {size}³")
        flops = 2 * size**3
        matmul.setdefault(name, []).append((flops, flops / _matmul_s(device, _FORMATS[name], size, share_s)))
    tell(len(jobs), len(jobs) + 4, "bytes per second")
    large, cached = (_copy_rate(device, size, share_s) for size in (256 * _MEBIBYTE, 4 * _MEBIBYTE))
    tell(len(jobs) + 2, len(jobs) + 4, "seconds per operation")
    return MachineProfile(
        device=facts(device).name,
        num_threads=torch.get_num_threads(),
        torch_version=torch.__version__,
        measured_at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        matmul={name: tuple(points) for name, points in matmul.items()},
        bytes_per_s=large,
        cached_bytes_per_s=cached,
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


def _matmul_s(device: torch.device, dtype: torch.dtype, size: int, budget_s: float) -> float:
    a = torch.ones(size, size, dtype=dtype, device=device)
    b = torch.ones(size, size, dtype=dtype, device=device)
    out = torch.empty(size, size, dtype=dtype, device=device)
    return best_s(lambda: torch.mm(a, b, out=out), device, budget_s)


def _copy_rate(device: torch.device, size_bytes: int, budget_s: float) -> float:
    """Bytes read plus bytes written per second by y = x + 1 on float32 tensors of `size_bytes` each."""
    x = torch.ones(size_bytes // 4, device=device)
    y = torch.empty_like(x)
    return 2 * size_bytes / best_s(lambda: torch.add(x, 1.0, out=y), device, budget_s)


def _operation_s(device: torch.device, budget_s: float) -> float:
    """Seconds that one operation on a handful of elements takes, most of it dispatch."""
    x = torch.ones(8, device=device)
    repeats = 100

    def many() -> None:
        for _ in range(repeats):
            torch.add(x, 1.0)

    return best_s(many, device, budget_s) / repeats


def _transcendental_s(device: torch.device, budget_s: float) -> float:
    """Seconds an exponential takes beyond moving its bytes, on a tensor that stays in the cache."""
    x = torch.zeros(_MEBIBYTE // 2, device=device)
    y = torch.empty_like(x)
    exponential_s = best_s(lambda: torch.exp(x, out=y), device, budget_s)
    addition_s = best_s(lambda: torch.add(x, 1.0, out=y), device, budget_s)
    return max(0.0, exponential_s - addition_s) / x.numel()
