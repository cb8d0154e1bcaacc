"""Every global of torch, numpy and Python that a step could change, put back as it was."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

_ONE_AT_A_TIME = threading.RLock()
#: Four times Python's own: the deepest model that runs by itself can be traced.
_CALLS_WITHIN_CALLS = 4000


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Leave every global random stream and every global setting of torch as it was, whatever happens inside.

    One thread is inside at a time: what it puts in the place of torch's functions is there for all of them.
    """
    with _ONE_AT_A_TIME:
        yield from _put_back()


def _put_back() -> Iterator[None]:
    put_back = [*_random_streams(), *_settings()]
    # A copy, and an operation that is looked at, take more calls within calls than the step by itself would.
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _CALLS_WITHIN_CALLS))
    try:
        yield
    finally:
        for restore, value in put_back:
            restore(value)


def _random_streams() -> list[tuple[Callable[[Any], Any], Any]]:
    streams: list[tuple[Callable[[Any], Any], Any]] = [
        (torch.random.set_rng_state, torch.random.get_rng_state()),
        (random.setstate, random.getstate()),
    ]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        streams.append((numpy.random.set_state, numpy.random.get_state()))
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch's function has no types
        streams.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    return streams


def _settings() -> list[tuple[Callable[[Any], Any], Any]]:
    def deterministic(mode: tuple[bool, bool]) -> None:
        torch.use_deterministic_algorithms(mode[0], warn_only=mode[1])

    def autocast(state: tuple[bool, bool, torch.dtype, torch.dtype, bool]) -> None:
        on_cpu, on_cuda, cpu_dtype, cuda_dtype, is_cached = state
        torch.set_autocast_enabled("cpu", on_cpu)
        torch.set_autocast_enabled("cuda", on_cuda)
        torch.set_autocast_dtype("cpu", cpu_dtype)
        torch.set_autocast_dtype("cuda", cuda_dtype)
        torch.set_autocast_cache_enabled(is_cached)

    def threads(count: int) -> None:
        if torch.get_num_threads() != count:  # to set it again slows fused attention down (`meter.threads`)
            torch.set_num_threads(count)

    return [
        (sys.setrecursionlimit, sys.getrecursionlimit()),
        (torch.set_default_dtype, torch.get_default_dtype()),
        (torch.set_grad_enabled, torch.is_grad_enabled()),
        (threads, torch.get_num_threads()),
        (torch.set_float32_matmul_precision, torch.get_float32_matmul_precision()),
        (torch.autograd.set_detect_anomaly, torch.is_anomaly_enabled()),
        (
            deterministic,
            (
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
            ),
        ),
        (
            autocast,
            (
                torch.is_autocast_enabled("cpu"),
                torch.is_autocast_enabled("cuda"),
                torch.get_autocast_dtype("cpu"),
                torch.get_autocast_dtype("cuda"),
                torch.is_autocast_cache_enabled(),
            ),
        ),
        # Not by `torch.backends.cudnn`, whose flags `torch.backends.disable_global_flags` locks for good.
        *(
            (getattr(torch._C, f"_set_cudnn_{flag}"), getattr(torch._C, f"_get_cudnn_{flag}")())  # noqa: SLF001  # as above
            for flag in ("enabled", "benchmark", "deterministic", "allow_tf32")
        ),
    ]
