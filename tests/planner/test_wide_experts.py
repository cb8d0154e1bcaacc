"""Experts over tensor parallel ranks too: where none is split, expert ranks are taken out of data · context · tensor.

Megatron-Core folds them so (arXiv:2504.14960, section 3): ep · etp divides dp · cp · tp.
"""

import random
from dataclasses import replace

import pytest
from enumerated import both_ways, drawn_points, points_under_bounds
from launched import CLUSTER, MIXTURE

from torchledger import spec as specs
from torchledger.machine import parse_cluster
from torchledger.planner.estimator import Estimator
from torchledger.planner.launch import launch
from torchledger.planner.search import search
from torchledger.planner.search_costs import LayoutCosts
from torchledger.planner.search_grid import Axes, Grid, divisors
from torchledger.planner.search_rules import ShapeRules
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, Recipe, Strategy
from torchledger.view.plan_layout import layout_text

OWN = ModelSpec(
    "own",
    1000,
    4096,
    3,
    512,
    AttentionSpec(8, num_key_value_heads=4),
    MlpSpec(1024),
    moe=MoeSpec(16, 2, 256, num_leading_dense_layers=1),
)


def cut(name, **moe):
    """A published mixture with two layers, and what else of its experts is cut."""
    spec = specs.load(name)
    return replace(spec, num_layers=2, moe=replace(spec.moe, **moe))


def narrowed(spec, stack, num_chips, share):
    """A question with few choices beside ranks, on chips on which so large a share of the drawn layouts fits."""
    axes = Axes(
        pipeline_parallel=(1, 2),
        virtual_stages=(1,),
        schedules=("1f1b",),
        tensor_parallel=(2, 4),
        micro_batch_sizes=(1, 2),
        context_kinds=("ring",),
        recomputes=("none", "full"),
    )
    recipe, cluster = Recipe(batch_size=8, sequence_length=2048, precision="bf16"), parse_cluster(f"h100x{num_chips}")
    base = Strategy(stack=stack)
    costs, grid = asked(Estimator(spec, recipe, cluster), base, axes)
    drawn = drawn_points(random.Random(0), costs, grid, 100)
    peaks = sorted(costs.peak_bytes(each[-1], each[2].recompute) for each in drawn)
    chip = replace(cluster.chip, memory_bytes_nominal=peaks[int(share * len(peaks))], memory_bytes_reported=None)
    return Estimator(spec, recipe, replace(cluster, chip=chip)), base, axes


def asked(estimator, base, axes):
    """Costs and the grid of a question."""
    grid = Grid(estimator.spec, estimator.recipe.batch_size, estimator.cluster.num_chips, base, axes)
    return LayoutCosts(estimator, base, axes), grid


def is_wide(strategy):
    """Whether experts lie over more ranks than the data and context parallel ones."""
    return strategy.expert_parallel > strategy.data_parallel * strategy.context_parallel


@pytest.mark.parametrize("num_chips", [1, 8, 12])
def test_the_grid_has_every_split_that_the_rules_know(num_chips):
    """Of all ep, and etp 0 and 1, those are on the grid of which ep · etp divides dp · cp · tp, each once."""
    splits = list(Grid(OWN, 8, num_chips, Strategy(), Axes()).splits())
    expected = []
    for tp in divisors(num_chips):
        for cp in divisors(num_chips // tp):
            for pp in divisors(num_chips // (tp * cp)):
                dp = num_chips // (tp * cp * pp)
                expected += [
                    (tp, cp, pp, dp, ep, etp)
                    for ep in range(1, num_chips + 1)
                    for etp in ((0, 1) if tp > 1 else (0,))  # of one tensor parallel rank both are the same
                    if (dp * cp * tp) % (ep * (etp or tp)) == 0
                ]
    assert sorted(splits) == sorted(expected)
    assert any(ep > dp * cp for _, cp, _, dp, ep, _ in splits) == (num_chips > 1)


@pytest.mark.parametrize(
    ("spec", "stack", "num_chips", "share"),
    [
        (OWN, "megatron", 8, 0.6),
        pytest.param(OWN, "torchtitan", 8, 0.3, marks=pytest.mark.proof),
        pytest.param(cut("mixtral-8x7b"), "torchledger", 8, 0.6, marks=pytest.mark.proof),
        pytest.param(
            cut("deepseek-v2-lite", num_experts=16, experts_per_token=2), "megatron", 8, 0.3, marks=pytest.mark.proof
        ),
        pytest.param(OWN, "nanotron", 16, 0.6, marks=pytest.mark.proof),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_the_search_finds_wide_layouts_as_every_point_does(spec, stack, num_chips, share):
    """Ranking and front are those of all points, some of the grid's are wide, and none is below a bound."""
    estimator, base, axes = narrowed(spec, stack, num_chips, share)
    got, expected, found = both_ways((estimator, base, axes))
    assert got == expected
    assert found.num_considered == found.num_points
    costs, grid = asked(estimator, base, axes)
    assert any(is_wide(each[-1]) for each in drawn_points(random.Random(1), costs, grid, 60))
    assert points_under_bounds(random.Random(1), costs, grid, 60) > 10


def test_a_wide_layout_is_among_the_best():
    """Of 16 experts on 8 chips some of the fastest layouts have more expert ranks than dp · cp: it matters."""
    estimator, base, axes = narrowed(OWN, "torchledger", 8, 0.6)
    costs, _ = asked(estimator, base, axes)
    found = search(OWN, (estimator.recipe,), estimator.cluster, lambda _recipe, _cluster: costs, base=base, axes=axes)
    assert any(is_wide(each.strategy) for each in (*found.best, *found.pareto_memory))


@pytest.mark.parametrize("stack", ["megatron", "torchtitan"])
def test_no_choice_that_a_rule_refuses_is_left_to_the_costs(stack):
    """Of groups of 2 of 8 ranks that shard, experts over 4 are not taken: the search asks that rule, too."""
    recipe, base, axes = Recipe(batch_size=16, sequence_length=512, precision="bf16"), Strategy(stack=stack), Axes()
    costs, grid = asked(Estimator(OWN, recipe, parse_cluster("h100x8")), base, axes)
    rules = ShapeRules(costs.refusals, base)
    refused = 0
    for split in grid.splits():
        for sharding in grid.shardings(split):
            broken = list(costs.refusals(grid.strategy(split, sharding=sharding)))
            of_group = [
                each.reason for each in broken if each.reason.endswith(f"shard_group of {sharding.shard_group}")
            ]
            if of_group and not rules.of_split(split):
                refused += 1
                assert rules.of_sharding(split, sharding) is not None
    assert refused > 10


def test_wide_experts_are_said_to_the_stacks():
    """64 expert ranks of 64 chips with tp 2 and dp 32: both launchers say 64; Megatron is told that none is split."""
    mixture = replace(MIXTURE, moe=MoeSpec(64, 2, 256))
    wide = Strategy(
        data_parallel=32,
        tensor_parallel=2,
        sequence_parallel=True,
        expert_parallel=64,
        expert_tensor_parallel=1,
        micro_batch_size=1,
    )
    recipe = Recipe(batch_size=64, sequence_length=1024, precision="bf16")
    words = launch(mixture, recipe, replace(wide, stack="megatron"), CLUSTER, "megatron").words
    for flag, number in (("expert-model-parallel-size", "64"), ("expert-tensor-parallel-size", "1")):
        assert words[words.index(f"--{flag}") + 1] == number
    sharded = replace(wide, stack="torchtitan", shard_level=3)
    said = launch(mixture, recipe, sharded, CLUSTER, "torchtitan").words
    assert said[said.index("--parallelism.expert_parallel_degree") + 1] == "64"
    assert layout_text(wide).endswith("(experts over 64 of the data · context · tensor ranks)")


def test_megatron_trains_no_mixture_over_tensor_ranks_that_all_have_all_tokens():
    """Its mixture raises in training where tensor parallelism has no sequence parallelism (megatron/core moe_layer)."""
    strategy = Strategy(stack="megatron", data_parallel=32, tensor_parallel=2, micro_batch_size=1)
    recipe = Recipe(batch_size=64, sequence_length=1024, precision="bf16")
    without = launch(MIXTURE, recipe, strategy, CLUSTER, "megatron")
    assert any("sequence parallelism" in reason for reason in without.cannot)
    split = launch(MIXTURE, recipe, replace(strategy, sequence_parallel=True), CLUSTER, "megatron")
    assert not any("sequence parallelism" in reason for reason in split.cannot)
