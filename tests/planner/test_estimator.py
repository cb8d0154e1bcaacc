"""One model for search and plan: the estimate is the plan's own, whatever was asked before."""

from dataclasses import replace

import pytest

from torchledger.machine import parse_cluster
from torchledger.planner.constants import default_constants
from torchledger.planner.estimator import Estimator
from torchledger.planner.plan import plan
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, PositionSpec, Recipe, Strategy

SPEC = ModelSpec("small", 1024, 512, 8, 256, AttentionSpec(8), MlpSpec(1024), tied_embeddings=True)
RECIPE = Recipe(batch_size=64, sequence_length=512, precision="bf16")


def test_an_estimate_is_the_plans_own_to_the_last_digit(layouts):
    """Seconds of the step and bytes of the fullest rank are equal, not close, for fifty drawn layouts."""
    for layout in layouts[:50]:
        found = Estimator(layout.spec, layout.recipe, layout.cluster).estimate(layout.strategy)
        full = plan(*layout)
        assert (found.step_s, found.peak_bytes) == (full.step_s, full.peak_bytes), layout.strategy


def test_what_was_asked_before_changes_no_answer():
    """One estimator asked for many layouts, forth and back, answers what a fresh one does."""
    cluster = parse_cluster("h100x8")
    asked = [
        Strategy(data_parallel=8, micro_batch_size=2),
        Strategy(data_parallel=4, tensor_parallel=2, micro_batch_size=2),
        Strategy(data_parallel=8, shard_level=3, micro_batch_size=2),
        Strategy(data_parallel=2, pipeline_parallel=4, micro_batch_size=1),
        Strategy(data_parallel=2, pipeline_parallel=4, micro_batch_size=2, schedule="gpipe"),
        Strategy(data_parallel=2, pipeline_parallel=4, micro_batch_size=1, stage_layers=(1, 3, 3, 1)),
        Strategy(data_parallel=2, context_parallel=4, micro_batch_size=1),
    ]
    one = Estimator(SPEC, RECIPE, cluster)
    for each in [*asked, *reversed(asked)]:
        assert one.estimate(each) == Estimator(SPEC, RECIPE, cluster).estimate(each)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_another_recompute_is_another_recipe(recompute):
    """`at` and `estimate(..., recompute)` answer what an estimator of that recipe does; it is made once."""
    cluster, strategy = parse_cluster("h100x8"), Strategy(data_parallel=8, micro_batch_size=2)
    one = Estimator(SPEC, RECIPE, cluster)
    other = Estimator(SPEC, replace(RECIPE, recompute=recompute), cluster)
    assert one.estimate(strategy, recompute) == one.at(recompute).estimate(strategy) == other.estimate(strategy)
    assert one.at(recompute) is one.at(recompute)


def test_other_constants_change_seconds_and_no_bytes():
    """`with_constants` shares the blocks and answers what an estimator made with those constants does."""
    cluster, strategy = parse_cluster("h100x8"), Strategy(data_parallel=8, micro_batch_size=2)
    slow = replace(default_constants(cluster.chip), matmul_share=0.4, host_s=1e-4)
    one = Estimator(SPEC, RECIPE, cluster)
    usual = one.estimate(strategy)
    other = one.with_constants(slow)
    assert other.estimate(strategy) == Estimator(SPEC, RECIPE, cluster, constants=slow).estimate(strategy)
    assert other.estimate(strategy).step_s > usual.step_s
    assert other.estimate(strategy).peak_bytes == usual.peak_bytes
    assert other.costed(strategy).pieces is one.costed(strategy).pieces
    assert one.estimate(strategy) == usual


def test_a_tied_head_on_a_stage_of_its_own_is_a_copy():
    """With a pipeline the last stage holds the tied matrix again, and not the positions: 1024 · 256 parameters more."""
    learned = replace(SPEC, position=PositionSpec("learned"), embedding_norm=True)
    one = Estimator(learned, RECIPE, parse_cluster("h100x2"))
    whole = one.held(Strategy(micro_batch_size=1))
    first, last = one.held(Strategy(pipeline_parallel=2, micro_batch_size=1))
    assert first.num_parameters + last.num_parameters == whole[0].num_parameters + 1024 * 256
    (head,) = (block for block, _ in last.blocks if block.kind == "head")
    assert head.largest_tensor == 1024 * 256


def test_the_fullest_rank_is_looked_for_on_every_stage(layouts):
    """`peak_bytes` asks a few stages only, and finds what asking all of them finds."""
    for layout in layouts[:50]:
        one = Estimator(layout.spec, layout.recipe, layout.cluster)
        every = [one.memory(layout.strategy, stage).peak_bytes for stage in one.held(layout.strategy)]
        assert one.peak_bytes(layout.strategy) == max(every), layout.strategy
