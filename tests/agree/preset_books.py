"""The books of a preset: one training step by formula, on no memory, and run, with every byte held against each other.

What a machine cannot hold with AdamW is trained with plain SGD on 16-bit parameters, and what it cannot hold so either
is cut to as many layers as fit: widths, heads and vocabulary stay those of the preset.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from torchledger import spec as specs
from torchledger.formula import count, memory, num_parameters
from torchledger.ledger import CONTRACTIONS, Ledger
from torchledger.meter import allocations, probe
from torchledger.spec import ModelSpec, OptimizerSpec, Recipe
from torchledger.tracer import Recorder, Trace, trace_step
from torchledger.trainer.step import build_step

TABLE = Path(__file__).parents[2] / "docs" / "presets-books.csv"
FIELDS = (
    "preset", "layers", "of_layers", "recipe", "formula_flops", "traced_flops", "measured_flops",
    "formula_tensor_bytes", "traced_tensor_bytes", "measured_tensor_bytes", "predicted_peak_bytes",
    "measured_peak_bytes",
)  # fmt: skip
#: Ways to train, in the order in which they are tried: the first that fits is taken, and all of its precisions are run.
WAYS = (("adamw fp32", "adamw bf16"), ("sgd bf16-pure",))
LENGTH = 32


@dataclass(frozen=True, slots=True)
class Run:
    """One training run of a preset that a machine can hold.

    Attributes:
        preset: its name.
        num_layers: how many of its layers are run.
        way: optimizer and precision.
    """

    preset: str
    num_layers: int
    way: str

    def __str__(self) -> str:
        return f"{self.preset}-{self.num_layers}-{self.way.replace(' ', '-')}"

    @property
    def spec(self) -> ModelSpec:
        """The model that runs."""
        return replace(specs.load(self.preset), num_layers=self.num_layers)

    @property
    def recipe(self) -> Recipe:
        """One sequence; the fused kernel in FP32, scores in memory in 16 bit, so that both stand in the books."""
        return recipe(self.way)


def recipe(way: str) -> Recipe:
    """How a way of `WAYS` trains."""
    kind, precision = way.split()
    return Recipe(
        sequence_length=LENGTH,
        num_tokens=LENGTH * 10,
        precision=precision,
        attention="fused" if precision == "fp32" else "math",
        optimizer=OptimizerSpec(kind),
    )


def runs(preset: str, memory_bytes: int) -> tuple[Run, ...]:
    """How a preset is run in so much memory, by the formula's peak; nothing where even its fewest layers do not fit."""
    whole = specs.load(preset)
    for ways in WAYS:
        if all(_peak(whole, way) <= memory_bytes for way in ways):
            return tuple(Run(preset, whole.num_layers, way) for way in ways)
    (way,), fewest = WAYS[-1], fewest_layers(whole)
    for num_layers in (fewest + 1, fewest):
        if num_layers < whole.num_layers and _peak(replace(whole, num_layers=num_layers), way) <= memory_bytes:
            return (Run(preset, num_layers, way),)
    return ()


def fewest_layers(spec: ModelSpec) -> int:
    """So many that every kind of layer occurs."""
    leading = 0 if spec.moe is None else spec.moe.num_leading_dense_layers
    every = 1 if spec.moe is None else spec.moe.every
    return min(spec.num_layers, max(leading + every, len(spec.attention.window_pattern), 1))


def _peak(spec: ModelSpec, way: str) -> int:
    peak_bytes: int = memory(spec, recipe(way)).peak_bytes
    return peak_bytes


def traced(run: Run) -> Trace:
    """Two steps on no memory, equal layers folded."""
    spec, asked = run.spec, run.recipe
    return trace_step(lambda: _built(spec, asked, is_real=False))


def contractions(ledger: Ledger) -> dict[str, tuple[object, object]]:
    """FLOPs of matmuls and attention, full and executed, by account."""
    accounts = ledger.where(kind=CONTRACTIONS).accounts()
    return {str(account): (work.flops_full, work.flops_executed) for account, work in accounts.items()}


def books(run: Run) -> dict[str, str]:
    """The row of a run, every number got in its own way. Holds the model for real, twice in turn."""
    spec, asked, fake = run.spec, run.recipe, traced(run)
    # What a library allocates once a process is none of the step's; a model of one layer calls as much of them.
    two_steps(replace(spec, vocab_size=64, num_layers=fewest_layers(spec)), asked)
    seen = allocations(lambda: two_steps(spec, asked))
    with Recorder() as recorder:
        two_steps(spec, asked, recorder)
    real = recorder.trace(since="step 2")
    scratch = probe(call.signature for call in fake.calls)
    assert not scratch.skipped, scratch.skipped
    numbers = {
        "formula_flops": count(spec, asked).flops,
        "traced_flops": fake.ledger.folded().flops,
        "measured_flops": real.ledger.flops,
        "formula_tensor_bytes": memory(spec, asked).peak_bytes,
        "traced_tensor_bytes": fake.timeline.peak().peak_bytes,
        "measured_tensor_bytes": real.timeline.peak().peak_bytes,
        "predicted_peak_bytes": fake.timeline.peak(internal=scratch.by_call(fake)).peak_bytes,
        "measured_peak_bytes": seen.peak_bytes,
    }
    whole = specs.load(run.preset).num_layers
    words = {"preset": run.preset, "layers": run.num_layers, "of_layers": whole, "recipe": run.way}
    return {name: str(value) for name, value in (words | numbers).items()}


def two_steps(spec: ModelSpec, asked: Recipe, recorder: Recorder | None = None) -> None:
    """Make the model for real and do two steps on drawn token ids."""
    if recorder is None:
        step = _built(spec, asked)
        step()
        step()
        return
    with recorder.phase("build"):
        step = _built(spec, asked)
    for number in (1, 2):
        recorder.mark(f"step {number}")
        step()


def _built(spec: ModelSpec, asked: Recipe, *, is_real: bool = True) -> Callable[[], object]:
    step, numbers = build_step(spec, asked, initialized=False), itertools.count()
    if is_real:
        _fill(step.model)
    shape, generator = (asked.batch_size, asked.sequence_length), torch.Generator().manual_seed(asked.seed)
    ids, targets = (torch.randint(spec.vocab_size, shape, generator=generator) for _ in range(2))
    return lambda: step([(ids, targets)], next(numbers))


def presets() -> Iterator[str]:
    """Every preset, by its number of parameters."""
    yield from sorted(specs.presets.names(), key=lambda name: num_parameters(specs.load(name)))


def rows() -> dict[tuple[str, str], dict[str, str]]:
    """Every row of the table by preset and recipe."""
    if not TABLE.exists():
        return {}
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {(entry["preset"], entry["recipe"]): entry for entry in csv.DictReader(file)}


def write(entries: dict[tuple[str, str], dict[str, str]]) -> None:
    """The table anew."""
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(entries.values())


@torch.no_grad()
def _fill(model: torch.nn.Module) -> None:
    """Any sound values, in place: neither FLOPs nor bytes ask for them, and those of `init` take minutes to draw."""
    for parameter in model.parameters():
        if parameter.ndim < 2:
            parameter.fill_(1.0)
        else:
            parameter.uniform_(-0.02, 0.02)
