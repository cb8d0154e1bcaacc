"""One full training step traced on no memory, against torch's own two counters on the same fake step. Ratios.

`torchledger.trace` gives FLOPs by module, op, phase and direction *and* the memory timeline. `FlopCounterMode` gives
FLOPs; `MemTracker` gives memory. All three run forward, backward, clipping and AdamW of the same model in this process.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils.flop_counter import FlopCounterMode

from torchledger import spec
from torchledger.cli.prediction import look
from torchledger.spec import Recipe
from torchledger.trainer.step import TrainStep, build_step, example_batch

RUNS = 3


def fake_step(model: spec.ModelSpec, recipe: Recipe, watch: Callable[[TrainStep], object]) -> None:
    """Two steps on fake tensors under a counter of torch's, as `look` runs them under ours."""
    with FakeTensorMode():
        step, batch = build_step(model, recipe, initialized=False), example_batch(recipe)
        with watch(step) as counter:  # type: ignore[attr-defined]
            for number in range(2):
                step(batch, number)
                if isinstance(counter, MemTracker):
                    counter.reset_mod_stats()  # it refuses a second step without


def flop_counter(_step: TrainStep) -> FlopCounterMode:
    """Torch's FLOP counter."""
    return FlopCounterMode(display=False)


def memory_tracker(step: TrainStep) -> MemTracker:
    """Torch's memory tracker."""
    tracker = MemTracker()
    tracker.track_external(step.model, step.optimizer)
    return tracker


def main() -> None:
    """Alternate the three, print medians and ratios."""
    name = sys.argv[1] if len(sys.argv) > 1 else "tinyllama-1.1b"
    model = spec.load(name)
    recipe = Recipe(sequence_length=min(model.max_sequence_length, 8192))
    runs: dict[str, Callable[[], object]] = {
        "torchledger.trace": lambda: look(model, recipe),
        "FlopCounterMode": lambda: fake_step(model, recipe, flop_counter),
        "MemTracker": lambda: fake_step(model, recipe, memory_tracker),
    }
    times: dict[str, list[float]] = {each: [] for each in runs}
    for each, run in runs.items():
        run()
        print(f"warmed up {each}", file=sys.stderr)
    for _ in range(RUNS):
        for each, run in runs.items():
            start = time.perf_counter()
            run()
            times[each].append(time.perf_counter() - start)
    ours = statistics.median(times["torchledger.trace"])
    print(f"two training steps of {name}, {recipe.sequence_length} tokens, on fake tensors, torch {torch.__version__}")
    print(f"{'counter':20}{'median s':>10}{'min s':>10}{'of ours':>10}")
    for each, took in times.items():
        print(f"{each:20}{statistics.median(took):10.2f}{min(took):10.2f}{statistics.median(took) / ours:10.2f}")


if __name__ == "__main__":
    main()
