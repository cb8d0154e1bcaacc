"""One full training step traced on no memory, against torch's own counters on the same fake step. Ratios.

`torchledger` gives FLOPs by module, op, phase and direction *and* the memory timeline, with every layer run and with
equal layers folded. `FlopCounterMode` gives FLOPs; `MemTracker` gives memory. These run two steps (forward, backward,
clipping, AdamW) of the same model on fake tensors in this process; the lightest that there is, `FlopCounterMode` over
one forward and backward on meta tensors, stands beside them. A second table is of a larger model in a process of its
own.

    python bench/trace.py [MODEL] [LARGE MODEL]
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils.flop_counter import FlopCounterMode

from torchledger import spec
from torchledger.cli.looked import look
from torchledger.spec import Recipe
from torchledger.trainer.step import TrainStep, build_step, example_batch

#: How often each is run, after one run that does not count; the memory tracker once, which takes most of a minute.
RUNS = 3
NUM_TOKENS = 8192

_APART = """
import json, resource, sys, time
begun = time.perf_counter()
from torchledger import spec
from torchledger.cli.looked import look
look(spec.load("gpt2"), spec.Recipe(sequence_length=8, precision="bf16"))  # loads what is loaded at first use
started = time.perf_counter(), time.process_time()
model = spec.load(sys.argv[1])
trace = look(model, spec.Recipe(sequence_length=int(sys.argv[2]), precision="bf16"), fold=sys.argv[3] == "folded")
peak = trace.peak()
ended = time.perf_counter(), time.process_time()
print(json.dumps({
    "process_start_s": started[0] - begun,
    "wall_s": ended[0] - started[0],
    "cpu_s": ended[1] - started[1],
    "resident_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "num_calls": len(trace.calls),
    "num_blocks": len(trace.timeline.blocks),
    "peak_bytes": peak.peak_bytes,
    "flops": trace.ledger.flops,
    "assumptions": trace.assumptions,
}))
"""


def fake_step(model: spec.ModelSpec, recipe: Recipe, watch: Callable[[TrainStep], object]) -> None:
    """Two steps on fake tensors under a counter of torch's, as `look` runs them under ours."""
    with FakeTensorMode():
        step, batch = build_step(model, recipe, initialized=False), example_batch(recipe)
        with watch(step) as counter:  # type: ignore[attr-defined]
            for number in range(2):
                step(batch, number)
                if isinstance(counter, MemTracker):
                    counter.reset_mod_stats()  # it refuses a second step without


def meta_pass(model: spec.ModelSpec, recipe: Recipe) -> None:
    """One forward and backward on meta tensors under the FLOP counter: no clipping, no optimizer, no memory."""
    with torch.device("meta"):
        step, batch = build_step(model, recipe, initialized=False), example_batch(recipe)
        with FlopCounterMode(display=False):
            for tokens, targets in batch:
                step.model(tokens, targets).backward()


def flop_counter(_step: TrainStep) -> FlopCounterMode:
    """Torch's FLOP counter."""
    return FlopCounterMode(display=False)


def memory_tracker(step: TrainStep) -> MemTracker:
    """Torch's memory tracker."""
    tracker = MemTracker()
    tracker.track_external(step.model, step.optimizer)
    return tracker


def side_by_side(name: str) -> None:
    """Alternate all of them, print medians, and ratios of processor time, which others' work disturbs less."""
    model = spec.load(name)
    recipe = Recipe(sequence_length=min(model.max_sequence_length, NUM_TOKENS))
    runs: dict[str, Callable[[], object]] = {
        "torchledger, folded": lambda: look(model, recipe),
        "torchledger, in full": lambda: look(model, recipe, fold=False),
        "FlopCounterMode, fake": lambda: fake_step(model, recipe, flop_counter),
        "FlopCounterMode, meta": lambda: meta_pass(model, recipe),
    }
    tracker = "MemTracker, fake"
    times: dict[str, list[tuple[float, float]]] = {each: [] for each in (*runs, tracker)}
    for run in runs.values():
        run()
    for _ in range(RUNS):
        for each, run in runs.items():
            times[each].append(_timed(run))
    times[tracker].append(_timed(lambda: fake_step(model, recipe, memory_tracker)))
    medians = {each: [statistics.median(column) for column in zip(*took, strict=True)] for each, took in times.items()}
    print(f"two training steps of {name}, {recipe.sequence_length} tokens, torch {torch.__version__}")
    print("(meta: one forward and backward)")
    print(f"{'':24}{'runs':>5}{'wall s':>9}{'CPU s':>9}{'of folded':>11}{'of in full':>12}")
    folded, full = (medians[f"torchledger, {how}"][1] for how in ("folded", "in full"))
    for each, (wall_s, cpu_s) in medians.items():
        print(f"{each:24}{len(times[each]):5}{wall_s:9.2f}{cpu_s:9.2f}{cpu_s / folded:11.2f}{cpu_s / full:12.2f}")


def _timed(run: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


def apart(name: str) -> None:
    """A larger model in processes of its own: seconds without process start, and the memory that the process took."""
    print(f"\ntwo training steps of {name}, {NUM_TOKENS} tokens, bf16, each in a process of its own")
    print(f"{'':24}{'start s':>9}{'wall s':>9}{'CPU s':>9}{'MiB':>9}{'calls':>9}{'blocks':>9}")
    for how in ("folded", "in full"):
        command = [sys.executable, "-c", _APART, name, str(NUM_TOKENS), how]
        answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(
            f"{'torchledger, ' + how:24}{answer['process_start_s']:9.2f}{answer['wall_s']:9.2f}{answer['cpu_s']:9.2f}"
            f"{answer['resident_mib']:9.0f}{answer['num_calls']:9}{answer['num_blocks']:9}"
        )
        print(f"  {answer['flops']:.4e} FLOPs, {answer['peak_bytes']:,} bytes at the peak", *answer["assumptions"])


def main() -> None:
    """Both tables."""
    names = sys.argv[1:]
    side_by_side(names[0] if names else "llama-3-8b")
    apart(names[1] if len(names) > 1 else "llama-3.1-405b")


if __name__ == "__main__":
    main()
