"""A training step looked at: the trainer's own step object on tensors that hold nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from torchledger.spec import ModelSpec, Recipe, Strategy
from torchledger.tracer import Trace, trace_step
from torchledger.tracer.targets.target import TargetName
from torchledger.trainer.ranks import Ranks
from torchledger.trainer.step import build_step, example_batch


def look(
    spec: ModelSpec,
    recipe: Recipe,
    *,
    target: TargetName = "cpu",
    chip: str | None = None,
    fold: bool = True,
    strategy: Strategy | None = None,
    ranks: Ranks = Ranks(),  # noqa: B008  # a frozen value
    weights: Path | None = None,
) -> Trace:
    """Two steps of the trainer's own step object on no memory; the ledger is of the second.

    Equal layers are run a few times only, unless `fold` says otherwise. Of many ranks it is one that is looked at, and
    `recipe` is that of the rank; nothing is sent.
    """

    def build() -> Callable[[], object]:
        step = build_step(spec, recipe, initialized=False, strategy=strategy, weights=weights)
        batch, numbers = example_batch(recipe), itertools.count()
        return lambda: step(batch, next(numbers))

    size = None if ranks.is_alone else ranks.size
    return trace_step(build, target=target, chip=chip, fold=fold, world_size=size, rank=ranks.rank)
