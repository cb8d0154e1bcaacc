"""Seconds of a training step before it runs: on a CPU its own kernels one by one, elsewhere a roofline."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import torch

from torchledger.cli.looked import look
from torchledger.ledger import Ledger
from torchledger.meter import kernel_seconds
from torchledger.planner import Rates, StepTime, step_time
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, Recipe
from torchledger.tracer import Trace
from torchledger.trainer.step import build_step, example_batch

Progress: TypeAlias = Callable[[int, int, str], None]

#: A model whose kernels have next to nothing to do: what a step of it takes, Python and autograd take.
_IDLE = ModelSpec("idle", 64, 8, 2, 32, AttentionSpec(4), MlpSpec(64))
_IDLE_STEPS = 40
_IDLE_S = 1.0  # no more steps after so long, but a few: beside other processes one waits for a core
_FEWEST_STEPS = 5


def pace(
    trace: Trace, recipe: Recipe, rates: Rates, *, times_kernels: bool, on_progress: Progress | None = None
) -> StepTime:
    """Seconds of the step that was looked at.

    Where kernels are timed, each of them by itself, every operation takes besides what Python and autograd take for
    one of a step that computes next to nothing.

    Args:
        trace: the step.
        recipe: how it trains: its precision and kernel.
        rates: what this machine was measured to deliver, for all that is not timed.
        times_kernels: whether the device is a CPU, and has the memory that the step's operands take.
        on_progress: told (done, total, what) while kernels are timed.
    """
    ledger = trace.ledger.folded()
    if not times_kernels:
        return step_time(ledger, rates)
    timed = kernel_seconds(
        (call.signature for call in trace.calls),
        likely_s=lambda line: step_time(Ledger.of((line,)), rates).step_s,
        on_progress=on_progress,
    )
    host_s = _host_s(recipe)
    found = step_time(ledger, rates, timed=[(line, seconds and seconds + host_s) for line, seconds in timed])
    words = f"Python and autograd take {host_s * 1e6:.1f} µs an operation, measured on a step of next to nothing"
    return replace(found, assumptions=(*found.assumptions, words))


def _host_s(recipe: Recipe) -> float:
    """Seconds that an operation takes beside its kernel."""
    # an FP8 product takes milliseconds on a CPU, however small it is
    precision = "bf16" if recipe.precision == "fp8" else recipe.precision
    idle = Recipe(
        precision=precision, attention=recipe.attention, batch_size=1, sequence_length=_IDLE.max_sequence_length
    )
    trace = look(_IDLE, idle, fold=False)
    timed = kernel_seconds((call.signature for call in trace.calls), budget_s=0.001, pool_bytes=0)
    kernels = step_time(trace.ledger.folded(), Rates({}, ()), timed=timed)
    num_operations: float = sum(line.times for line in trace.ledger.folded() if line.work.bytes_moved)
    with torch.random.fork_rng(devices=[]):
        step, batch = build_step(_IDLE, idle), example_batch(idle)
        seconds: list[float] = []
        end = time.perf_counter() + _IDLE_S
        while len(seconds) < _FEWEST_STEPS or (len(seconds) < _IDLE_STEPS and time.perf_counter() < end):
            begin = time.perf_counter()
            step(batch, len(seconds))
            seconds.append(time.perf_counter() - begin)
    return max(0.0, sorted(seconds)[len(seconds) // 4] - kernels.step_s) / num_operations
