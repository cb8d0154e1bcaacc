"""What a step really cost: the run's own first two steps done once more, under the profiler and under the recorder.

Measuring slows a step down, so the run itself goes unmeasured but for the clock. The steps are the run's to the bit:
same object, same data, same seeds; their losses are held against those that the run wrote down.
"""

from __future__ import annotations

import contextlib
import gc
from dataclasses import dataclass, replace

import torch

from torchledger.ledger import Ledger
from torchledger.meter import allocations
from torchledger.tracer import Recorder
from torchledger.trainer.compiled import compile_model
from torchledger.trainer.seeds import seed_step
from torchledger.trainer.setup import Setup
from torchledger.trainer.step import build_step, micro_batches
from torchledger.trainer.stream import training_batches

NUM_STEPS = 2  # the first makes the optimizer's state, the second is like all others


def num_steps(setup: Setup) -> int:
    """How many steps are run, of which the last is like all others.

    On many ranks DDP sorts its buckets anew in the second, and tells the other ranks.
    """
    return NUM_STEPS if setup.ranks.is_alone else NUM_STEPS + 1


@dataclass(frozen=True, slots=True)
class Measurement:
    """What two steps were measured to cost.

    Attributes:
        ledger: every operation that really ran in the second step.
        peak_tensor_bytes: most bytes of tensors alive at once, from the making of the model on.
        peak_bytes: most bytes that the allocator had given out at once, kernels' own included.
        losses: of the two steps.
        how: in words.
    """

    ledger: Ledger
    peak_tensor_bytes: int
    peak_bytes: int | None
    losses: tuple[float, ...]
    how: str


def measure_steps(setup: Setup) -> Measurement:
    """Do the run's first two steps again, twice: under the allocator's profiler, then under the recorder.

    torch compiles nothing under the recorder: of compiled layers it tells the operations that they were compiled from.
    """
    gc.collect()
    if setup.device.type == "cpu":
        _steps(setup)  # what a library allocates once a process is none of the step's
        seen = allocations(lambda: _steps(setup))
        losses, peak_bytes, how = seen.result, seen.peak_bytes, "by the CPU allocator's own events"
    elif setup.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(setup.device)
        losses = _steps(setup)
        peak_bytes, how = torch.cuda.max_memory_allocated(setup.device), "torch.cuda.max_memory_allocated"
    else:
        losses, peak_bytes, how = _steps(setup), None, f"{setup.device.type} tells no peak"
    with Recorder() as recorder:
        _steps(setup, recorder)
    trace = recorder.trace(since=f"step {num_steps(setup)}")
    lines = (replace(line, origin="measured") for line in trace.ledger)
    ledger = Ledger.of(lines, convention=trace.ledger.convention)
    return Measurement(ledger, trace.timeline.peak().peak_bytes, peak_bytes, losses, how)


def _steps(setup: Setup, recorder: Recorder | None = None) -> tuple[float, ...]:
    """Make the model and do the first steps, as the run does."""
    recipe = setup.recipe
    losses: list[float] = []
    with training_batches(setup) as batches:
        with setup.device, _phase(recorder, "build"):
            weights = setup.config.initial_weights
            step = build_step(setup.spec, setup.local_recipe, strategy=setup.strategy, weights=weights)
            compile_model(step.model, setup.compiled)
        for number in range(num_steps(setup)):
            if recorder is not None:
                recorder.register(step.model)
                recorder.mark(f"step {number + 1}")
            batch = batches.batch(number)
            if recorder is not None:
                recorder.register_inputs(list(batch))
            seed_step(recipe.seed, number, setup.ranks.drawing_rank(setup.strategy))
            result = step(micro_batches(batch, setup.local_recipe.accumulation_steps), number)
            losses.append(result.loss.item())
            del batch, result
    return tuple(losses)


def _phase(recorder: Recorder | None, name: str) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if recorder is None else recorder.phase(name)
