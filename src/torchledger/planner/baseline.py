"""What a prediction has to beat: guesses of a step's seconds from FLOPs alone, and from other people's rows.

None knows anything of layouts but what a line can say. `TypicalMfu` and `Regression` are made from rows of other
families than the one that they are tried on, so that no row helps to predict itself or its neighbours on a cluster.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

from torchledger.formula import num_active_parameters
from torchledger.machine.chip import rate_format
from torchledger.planner.measured import MeasuredRow
from torchledger.spec import ModelSpec

#: Seconds of a step of a row's question.
Guess: TypeAlias = Callable[[MeasuredRow], float]

#: What a chip of which no other family has a row is guessed with (the napkin's figure).
_UNSEEN_MFU = 0.4
_RIDGE = 1e-2
_MULTIPLIED: dict[str, float] = {}


def matmul_format(precision: str) -> str:
    """The format that a recipe's matrix products run in.

    >>> matmul_format("bf16-master"), matmul_format("mxfp8")
    ('bf16', 'fp8')
    """
    return rate_format(precision.partition("-")[0])


def flops_of(row: MeasuredRow) -> float:
    """Model FLOPs of a step, matrix products and causal attention, forward and backward: 6N + 6·L·T·H·Q a token.

    N has no input embedding and no positions (Megatron-Core's convention since 2025); with adapters alone trained the
    weight gradients are left out.
    """
    spec = row.spec
    inner = spec.attention.num_heads * (spec.head_size + spec.value_head_size) / 2
    attention = 2 * spec.num_layers * row.recipe.sequence_length * inner
    weights = 2 * _multiplied(spec)
    times = (2, 3) if row.recipe.lora_rank else (3, 3)
    return (times[0] * weights + times[1] * attention) * row.recipe.tokens_per_step


def _multiplied(spec: ModelSpec) -> float:
    """Parameters that a token is multiplied with, remembered: a baseline asks for each model some hundred times."""
    told = repr(spec)
    if told not in _MULTIPLIED:
        _MULTIPLIED[told] = _multiplied_anew(spec)
    return _MULTIPLIED[told]


def _multiplied_anew(spec: ModelSpec) -> float:
    total = float(num_active_parameters(spec)) - spec.num_position_rows * spec.hidden_size
    return total if spec.tied_embeddings else total - spec.vocab_size * spec.hidden_size


def peak_s(row: MeasuredRow) -> float:
    """Seconds of the model FLOPs at the dense peak of all chips."""
    return flops_of(row) / row.cluster.peak(matmul_format(row.recipe.precision))


def constant_mfu(mfu: float) -> Guess:
    """Every run has the same MFU."""
    return lambda row: peak_s(row) / mfu


@dataclass(frozen=True, slots=True)
class TypicalMfu:
    """The typical MFU of other rows with the same chip and width of format; of the same width where the chip has none.

    Typical is the median over sources of each source's median, so that a source with 700 rows has one voice.
    """

    by_chip: Mapping[tuple[str, str], float]
    by_format: Mapping[str, float]

    @classmethod
    def of(cls, rows: Sequence[MeasuredRow]) -> TypicalMfu:
        """From measured rows (those without seconds are passed over)."""
        by_chip: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        by_format: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in rows:
            if row.step_s is not None:
                kind = _width(row)
                by_chip[row.cluster.chip.key, kind][row.source].append(peak_s(row) / row.step_s)
                by_format[kind][row.source].append(peak_s(row) / row.step_s)
        return cls(
            {key: _typical(by_source) for key, by_source in by_chip.items()},
            {key: _typical(by_source) for key, by_source in by_format.items()},
        )

    def __call__(self, row: MeasuredRow) -> float:
        """Seconds of a step."""
        kind = _width(row)
        mfu = self.by_chip.get((row.cluster.chip.key, kind), self.by_format.get(kind, _UNSEEN_MFU))
        return peak_s(row) / mfu


def _typical(by_source: Mapping[str, Sequence[float]]) -> float:
    return median(median(values) for values in by_source.values())


def _width(row: MeasuredRow) -> str:
    """FP16 and BF16 run alike."""
    kind = matmul_format(row.recipe.precision)
    return "16 bit" if kind in {"bf16", "fp16"} else kind


@dataclass(frozen=True, slots=True)
class Regression:
    """A line through the logarithms of other rows: -ln MFU over what a row's question says, with a little ridge.

    Every source has the same weight, however many rows it has.
    """

    weights: tuple[float, ...]

    @classmethod
    def of(cls, rows: Sequence[MeasuredRow]) -> Regression:
        """Least squares over measured rows (those without seconds are passed over)."""
        counts = Counter(row.source for row in rows if row.step_s is not None)
        told = [
            (1 / counts[row.source], _features(row), math.log(row.step_s / peak_s(row)))
            for row in rows
            if row.step_s is not None
        ]
        size = len(_features(rows[0]))
        ridge = _RIDGE * len(counts)
        matrix = [
            [math.fsum(w * x[i] * x[j] for w, x, _ in told) + (ridge if i == j > 0 else 0.0) for j in range(size)]
            for i in range(size)
        ]
        right = [math.fsum(w * x[i] * y for w, x, y in told) for i in range(size)]
        return cls(tuple(_solved(matrix, right)))

    def __call__(self, row: MeasuredRow) -> float:
        """Seconds of a step."""
        slowness = math.fsum(weight * x for weight, x in zip(self.weights, _features(row), strict=True))
        return peak_s(row) * math.exp(slowness)


def _features(row: MeasuredRow) -> tuple[float, ...]:
    """What the line is drawn over: recompute, format, width and tokens of a rank's products, bubble, network."""
    strategy, recipe = row.strategy, row.recipe
    tokens = strategy.micro_batch_size * recipe.sequence_length / strategy.context_parallel
    bubble = (strategy.pipeline_parallel - 1) / (recipe.accumulation_steps * strategy.virtual_stages)
    kind = matmul_format(recipe.precision)
    return (
        1.0,
        float(recipe.recompute == "full"),
        float(kind == "fp8"),
        float(kind == "fp4"),
        float(row.spec.moe is not None),
        math.log(row.spec.hidden_size / strategy.tensor_parallel / 1024),
        math.log(tokens / 4096),
        math.log1p(bubble),
        float(strategy.tensor_parallel > row.cluster.chips_per_island),
        math.log(row.cluster.num_chips / 64) / 4,
    )


def _solved(matrix: list[list[float]], right: list[float]) -> list[float]:
    """X of matrix·x = right for a positive definite matrix, by elimination."""
    size = len(right)
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(i + 1, size):
            factor = rows[k][i] / rows[i][i]
            rows[k] = [a - factor * b for a, b in zip(rows[k], rows[i], strict=True)]
    found = [0.0] * size
    for i in reversed(range(size)):
        found[i] = (rows[i][size] - math.fsum(rows[i][j] * found[j] for j in range(i + 1, size))) / rows[i][i]
    return found


def leave_family_out(rows: Sequence[MeasuredRow], make: Callable[[Sequence[MeasuredRow]], Guess]) -> Guess:
    """A guess that for every row is made from the rows of the other families."""
    made: dict[str, Guess] = {}

    def guess(row: MeasuredRow) -> float:
        if row.family not in made:
            made[row.family] = make([each for each in rows if each.family != row.family])
        return made[row.family](row)

    return guess
