"""Questions that are nearly the same are alike, and each change makes them less so."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from torchledger.planner.likeness import LENGTH, NUM_FEATURES, likeness, place
from torchledger.spec import Recipe, Strategy, load

SPEC, RECIPE, STRATEGY = load("gpt2"), Recipe(batch_size=64), Strategy(data_parallel=8, micro_batch_size=2)
HERE = place(SPEC, RECIPE, STRATEGY)


def test_a_question_is_most_like_itself() -> None:
    assert likeness(HERE, HERE) == 1
    assert len(HERE) == NUM_FEATURES


@pytest.mark.parametrize(
    "other",
    [
        place(replace(SPEC, hidden_size=2 * SPEC.hidden_size), RECIPE, STRATEGY),
        place(replace(SPEC, num_layers=2 * SPEC.num_layers), RECIPE, STRATEGY),
        place(SPEC, replace(RECIPE, sequence_length=2048), STRATEGY),
        place(SPEC, replace(RECIPE, recompute="full"), STRATEGY),
        place(SPEC, RECIPE, replace(STRATEGY, tensor_parallel=2)),
        place(SPEC, RECIPE, replace(STRATEGY, pipeline_parallel=2)),
        place(SPEC, RECIPE, replace(STRATEGY, data_parallel=16)),
        place(SPEC, RECIPE, replace(STRATEGY, micro_batch_size=4)),
        place(SPEC, RECIPE, replace(STRATEGY, shard_level=3)),
    ],
)
def test_every_change_makes_it_less_alike(other: tuple[float, ...]) -> None:
    assert 0 < likeness(HERE, other) < 1


def test_a_width_of_twice_is_ln_2_away() -> None:
    wide = place(replace(SPEC, hidden_size=2 * SPEC.hidden_size), RECIPE, STRATEGY)
    assert likeness(HERE, wide) == pytest.approx(math.exp(-(math.log(2) ** 2) / (2 * LENGTH**2)))
