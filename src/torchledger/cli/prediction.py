"""What a training run will cost, before it runs: the formula's ledger, the trace's memory, this machine's pace."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch

from torchledger.cli.looked import look
from torchledger.cli.pace import pace
from torchledger.formula import count, num_parameters
from torchledger.formula.precision import FORMATS
from torchledger.ledger import CONTRACTIONS, HARDWARE_FLOPS, Convention, Ledger
from torchledger.machine.profile import MachineProfile
from torchledger.memory import Peak
from torchledger.meter import Scratch, calibrate, facts, keep_heap, probe
from torchledger.planner import Rates, StepTime
from torchledger.planner.rank_ledger import rank_ledger
from torchledger.spec import Recipe
from torchledger.spec.recipe import Recompute
from torchledger.tracer import Trace
from torchledger.trainer.setup import Setup
from torchledger.trainer.utilization import Yardstick
from torchledger.units import format_bytes, format_flops_per_s

Progress: TypeAlias = Callable[[int, int, str], None]

_RECOMPUTES: tuple[Recompute, ...] = ("none", "full")  # the mildest first


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was told before the run.

    Attributes:
        setup: the run.
        ledger: one step by formula.
        trace: the same step looked at on no memory.
        scratch: what its kernels were probed to hold inside; nothing was probed where the device is no CPU, or where
            the tensors alone do not fit.
        profile: what this machine was measured to deliver.
        time: seconds of the step, line by line.
        free_bytes: memory that was free when it was told.
        heap: what was done about memory that is freed, in words; empty where nothing was.
    """

    setup: Setup
    ledger: Ledger
    trace: Trace
    scratch: Scratch
    profile: MachineProfile
    time: StepTime
    free_bytes: int
    heap: str = ""

    @property
    def step_flops(self) -> int:
        """Model FLOPs of one step: contractions, attention in full, no recompute."""
        flops: int = self.ledger.flops
        return flops

    @property
    def num_steps(self) -> int:
        """Steps of the whole run."""
        return self.setup.recipe.num_steps

    @property
    def tensor_peak(self) -> Peak:
        """The peak of the tensors alone."""
        return self.trace.timeline.peak()

    @property
    def peak(self) -> Peak:
        """The peak with what kernels hold inside."""
        return self.trace.timeline.peak(internal=self.scratch.by_call(self.trace))

    @property
    def peak_flops_per_s(self) -> float | None:
        """The largest matmul rate measured here in the run's format: the practical peak that MFU is held against."""
        return self.profile.peak(FORMATS[self.setup.recipe.precision].product)

    @property
    def step_s(self) -> float | None:
        """Seconds of one step; `None` where the time of some of it is unknown."""
        return None if self.time.unknown else self.time.step_s

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation of the practical peak; `None` where that or the step's time is unknown."""
        peak, step_s = self.peak_flops_per_s, self.step_s
        return None if not peak or step_s is None else self.step_flops / (step_s * peak)

    @property
    def untimed_ops(self) -> tuple[str, ...]:
        """Operations whose time nobody knows, by name, each once."""
        return tuple(dict.fromkeys(line.op for line in self.time.unknown))

    @property
    def peak_source(self) -> str:
        """What the practical peak was measured with."""
        product = FORMATS[self.setup.recipe.precision].product
        return f"largest {product} matmul measured on {self.profile.device}, {self.profile.num_threads} threads"

    @property
    def yardstick(self) -> Yardstick:
        """What the run's steps are held against, numerator and denominator named."""
        traced, peak = self.trace.ledger.folded(), self.peak_flops_per_s
        denominator = "" if peak is None else f"; of {format_flops_per_s(peak)}, {self.peak_source}"
        return Yardstick(
            model_flops=self.step_flops,
            causal_flops=self.ledger.under(Convention(attention="exact")).flops,
            hardware_flops=traced.under(HARDWARE_FLOPS).flops,
            peak_flops_per_s=peak,
            convention=f"MFU counts {self.ledger.convention.text}{denominator}",
        )

    @property
    def copies_of_gloo(self) -> bool:
        """Whether collectives on the CPU hold memory of their own, in threads of theirs: all but those of DDP."""
        strategy, setup = self.setup.strategy, self.setup
        is_copying = strategy.shard_level > 0 or strategy.tensor_parallel > 1
        return setup.device.type == "cpu" and not setup.ranks.is_alone and is_copying

    @property
    def is_fitting(self) -> bool:
        """Whether the predicted peak is within the free memory."""
        return self.needed_bytes <= self.free_bytes

    @property
    def copied_bytes(self) -> int:
        """Parameters and optimizer state once more, while a checkpoint is written beside training; 0 where none is."""
        if not self.setup.config.async_checkpoint:
            return 0
        parts = self.tensor_peak.by_part()
        return parts.get("parameters", 0) + parts.get("optimizer state", 0)

    @property
    def needed_bytes(self) -> int:
        """The peak of a step, on a CPU with the copy of a checkpoint beside it; the copy never is on a GPU."""
        return self.peak.peak_bytes + (self.copied_bytes if self.setup.device.type == "cpu" else 0)

    @property
    def figures(self) -> dict[str, Any]:
        """The figures by name with units, as JSON and reports tell them."""
        recipe = self.setup.recipe
        peak, tensors, step_s = self.peak, self.tensor_peak, self.step_s
        phases = {phase: group.flops for phase, group in self.ledger.by("phase").items()}
        return {
            "num_parameters": num_parameters(self.setup.spec),
            "step_flops": self.step_flops,
            "flops_by_phase": phases,
            "run_flops": self.step_flops * self.num_steps,
            "convention": self.ledger.convention.text,
            "peak_tensor_bytes": tensors.peak_bytes,
            "parts_bytes": tensors.by_part(),
            "peak_bytes": peak.peak_bytes,
            "scratch_bytes": peak.peak_bytes - tensors.peak_bytes,
            "checkpoint_copy_bytes": self.copied_bytes,
            "free_bytes": self.free_bytes,
            "step_s": step_s,
            "least_step_s": self.time.step_s,
            "step_s_by": "its kernels, one by one" if self.time.by_kernels else "roofline",
            "untimed_ops": list(self.untimed_ops),
            "seconds_by_kind": dict(self.time.by_kind),
            "tokens_per_s": None if step_s is None else recipe.tokens_per_step / step_s,
            "mfu": self.mfu,
            "peak_flops_per_s": self.peak_flops_per_s,
            "peak_source": self.peak_source,
            "num_steps": self.num_steps,
            "run_s": None if step_s is None else step_s * self.num_steps,
            "num_tokens": recipe.num_tokens,
            "epochs": self.setup.epochs,
            # what weights know that were trained before, nobody can tell
            "initial_loss": None if self.setup.config.initial_weights else math.log(self.setup.spec.vocab_size),
            "num_ranks": self.setup.ranks.size,
            "communication_bytes": bytes_sent(self.ledger),
        }

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Everything that was assumed."""
        own = [
            "MFU is held against the largest matmul measured here, not against a data sheet",
            "seconds are of training steps alone: evaluation, saving and sampling come on top",
        ]
        if self.copied_bytes:
            own.append(
                f"a checkpoint that is written beside training takes {format_bytes(self.copied_bytes)} of host memory "
                "meanwhile, beside the peak of a step: parameters and optimizer state once more"
            )
        if self.heap:
            own.append(self.heap)
        if self.setup.device.type == "cpu" and not self.scratch.internal_bytes:
            own.append("what kernels hold inside is not in the peak: to probe them takes the memory that is not there")
        if self.setup.device.type != "cpu":
            own.append(f"memory is that of the CPU's kernels; what {self.setup.device.type} kernels hold is not in it")
        if self.copies_of_gloo:
            own.append(
                "what gloo copies for itself is not in the peak: the tensors that it gathers and scatters, or more"
            )
        if self.untimed_ops:
            own.append(f"no time is known for {', '.join(self.untimed_ops)}: the step is longer by theirs")
        return tuple(dict.fromkeys((*self.setup.assumptions, *self.ledger.assumptions, *self.time.assumptions, *own)))


def predict(setup: Setup, on_progress: Progress | None = None) -> Prediction:
    """Tell what a run will cost, and measure what of this machine that takes.

    Args:
        setup: the run.
        on_progress: told (done, total, what) while the machine is measured and kernels are probed.
    """
    recipe, device = setup.recipe, setup.device
    heap = keep_heap() if device.type == "cpu" else ""
    free_bytes = facts(device).free_bytes  # before probes, whose memory stays in the process for the steps
    weights = setup.config.initial_weights
    trace = look(setup.spec, setup.local_recipe, strategy=setup.strategy, ranks=setup.ranks, weights=weights)
    scratch = _probed(trace, device, free_bytes, on_progress)
    times_kernels = device.type == "cpu" and trace.peak().peak_bytes <= free_bytes
    formats = tuple(dict.fromkeys(("fp32", *_formats(recipe.precision, device))))
    profile = calibrate(device, formats=formats, on_progress=on_progress)
    return Prediction(
        setup=setup,
        ledger=_formula(setup),
        trace=trace,
        scratch=scratch,
        profile=profile,
        time=pace(trace, recipe, Rates.measured(profile), times_kernels=times_kernels, on_progress=on_progress),
        free_bytes=free_bytes,
        heap=heap,
    )


def _formats(precision: str, device: torch.device) -> tuple[str, ...]:
    """Formats whose matmul is measured: the precision's own, and on a CPU FP8, whose kernel there is slow."""
    formats = FORMATS[precision]
    return (formats.product, "fp8") if formats.narrow == "fp8" and device.type == "cpu" else (formats.product,)


def _formula(setup: Setup) -> Ledger:
    """The step by arithmetic: of one process, or of one rank with what it sends."""
    if setup.ranks.is_alone:
        return count(setup.spec, setup.recipe)
    kernels = "cuda" if setup.device.type == "cuda" else "cpu"
    return rank_ledger(setup.spec, setup.recipe, setup.strategy, kernels=kernels)


def _probed(trace: Trace, device: torch.device, free_bytes: int, on_progress: Progress | None = None) -> Scratch:
    """What the kernels of a step hold inside; nothing where the tensors do not fit.

    A probe holds an operation's operands for real, and the system kills who asks for more memory than there is.
    """
    if device.type != "cpu" or trace.peak().peak_bytes > free_bytes:
        return Scratch()
    return probe((call.signature for call in trace.calls), on_progress=on_progress)


def bytes_sent(ledger: Ledger) -> int:
    """Bytes that a rank sends in a step, every collective by a ring; 0 of one process."""
    return round(sum(line.total.bytes_sent or 0 for line in ledger if line.kind == "collective"))


def disagreement(by_formula: Ledger, trace: Trace) -> tuple[str, ...]:
    """Where formula and trace count different contraction FLOPs, account by account; empty where they agree."""
    kinds = set(CONTRACTIONS)
    sent, seen = bytes_sent(by_formula), bytes_sent(trace.ledger)
    gap = () if sent == seen else (f"communication: formula {sent:,} bytes sent, the trace {seen:,}",)
    gaps = by_formula.where(kind=kinds) - trace.ledger.folded().where(kind=kinds)
    return gap + tuple(
        f"{line.name}: "
        + ("the trace does not know" if line.work.flops_full is None else f"formula {line.work.flops_full:+,} FLOPs")
        for line in gaps
        if line.work.flops_full != 0
    )


def what_would_fit(setup: Setup, free_bytes: int) -> str:
    """The mildest change of the recipe that fits into `free_bytes`, in words; what is least if nothing does.

    Smaller micro-batches come first, since they cost no FLOPs; then recomputing each layer; then both. On a CPU the
    kernels of a change whose tensors fit are probed before it is named.
    """
    recipe, found = setup.recipe, dict[tuple[str, int], int]()
    steps = [n for n in _divisors(recipe.batch_size) if n % recipe.accumulation_steps == 0]

    def peak_bytes(recompute: Recompute, accumulation_steps: int) -> int:
        choice = recompute, accumulation_steps
        if choice not in found:
            changed = replace(recipe, recompute=recompute, accumulation_steps=accumulation_steps)
            found[choice] = _peak_bytes(setup, changed, free_bytes)
        return found[choice]

    for recompute in _RECOMPUTES:
        if peak_bytes(recompute, steps[-1]) > free_bytes:  # the smallest micro-batches, so no others do either
            continue
        first = bisect_left(steps, x=True, key=lambda n: peak_bytes(recompute, n) <= free_bytes)
        words = f"recipe.accumulation_steps={steps[first]} recipe.recompute={recompute}"
        return f"{words} fits: {peak_bytes(recompute, steps[first]):,} bytes at the peak"
    least = min(found, key=lambda choice: found[choice])
    words = f"recipe.accumulation_steps={least[1]} recipe.recompute={least[0]}"
    return f"the least is {found[least]:,} bytes, with {words}; take a smaller model or a shorter sequence"


def _divisors(number: int) -> list[int]:
    """What divides a number, in order; of very large ones the pairs of which one is at most a million.

    >>> _divisors(12), len(_divisors(10**10))
    ([1, 2, 3, 4, 6, 12], 121)
    """
    small = [n for n in range(1, min(math.isqrt(number), 10**6) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def _peak_bytes(setup: Setup, recipe: Recipe, free_bytes: int) -> int:
    """Peak of a step with what kernels hold inside, or that of its tensors where they alone do not fit.

    Micro-batches after the second repeat it, but for their token ids and kept losses.
    """
    few = min(recipe.accumulation_steps, 2)
    short = replace(recipe, batch_size=few * recipe.micro_batch_size, accumulation_steps=few)
    ids_bytes = 2 * 8 * (recipe.tokens_per_step - short.tokens_per_step)  # inputs and targets, int64
    losses_bytes = 4 * (recipe.accumulation_steps - few)
    beyond = ids_bytes + losses_bytes
    trace = look(setup.spec, short)
    inside = _probed(trace, setup.device, free_bytes - beyond).by_call(trace)
    return trace.timeline.peak(internal=inside).peak_bytes + beyond
