"""The search over the estimator's own costs: every point has one fate, and what it offers is what plans say."""

import random
from dataclasses import replace

import pytest

from torchledger.machine import parse_cluster
from torchledger.planner.estimator import Estimator
from torchledger.planner.plan import plan
from torchledger.planner.search import search, search_chips
from torchledger.planner.search_costs import LayoutCosts
from torchledger.planner.search_grid import Axes
from torchledger.planner.terms import RunTerms
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, Recipe, Strategy
from torchledger.view.plan_found import found_to_dict

SPECS = (
    ModelSpec("dense", 1024, 512, 8, 256, AttentionSpec(8), MlpSpec(1024)),
    ModelSpec("grouped", 1000, 512, 6, 256, AttentionSpec(8, num_key_value_heads=4), MlpSpec(768)),
    ModelSpec("mixture", 1024, 512, 4, 256, AttentionSpec(8), MlpSpec(512), moe=MoeSpec(8, 2, 128)),
)
STACKS = ("megatron", "fsdp2", "torchtitan", "torchledger", "megatron-2021", "deepspeed", "nanotron", "fsdp1")


def asker(spec, base):
    """Costs of a layout of this model."""
    axes = Axes()
    return lambda recipe, cluster: LayoutCosts(Estimator(spec, recipe, cluster), base, axes)


def drawn(seed):
    draw = random.Random(seed)
    spec, base = draw.choice(SPECS), Strategy(stack=draw.choice(STACKS))
    recipe = Recipe(batch_size=draw.choice((4, 6, 8)), sequence_length=512, precision="bf16", num_tokens=10**7)
    return draw, spec, base, recipe


def with_one_fate(found):
    """Whether points kept and points lost, by reason, are the points of the grid; as data too."""
    lost = sum(each.num_points for each in found.losses)
    kept = set(found.best) | set(found.pareto_memory)
    told = found_to_dict(found)
    listed = told["best"] + [each for each in told["pareto_memory"] if each not in told["best"]]
    assert min(each.num_points for each in found.losses) > 0
    return lost + len(kept) == lost + len(listed) == found.num_considered == found.num_points


@pytest.mark.parametrize("seed", range(12))
def test_every_point_has_one_fate(seed):
    """On drawn grids losses' counts plus the layouts kept are the points, exactly: on one size, two recipes, two sizes.

    What is ranked and on the front is the same entry in both lists of the answer, so it is counted once there, too.
    """
    draw, spec, base, recipe = drawn(seed)
    clusters = tuple(parse_cluster(f"{draw.choice(('h100', 'a100'))}x{number}") for number in (2, draw.choice((4, 8))))
    costs, num_best = asker(spec, base), draw.choice((1, 5, 20))
    assert with_one_fate(search(spec, (recipe,), clusters[1], costs, base=base, num_best=num_best))
    offloaded = replace(recipe, offload_optimizer=True)
    assert with_one_fate(search(spec, (recipe, offloaded), clusters[0], costs, base=base, num_best=num_best))
    assert with_one_fate(search_chips(spec, (recipe,), clusters, costs, base=base, num_best=num_best))


def test_where_nothing_fits_every_point_is_lost():
    """A model too large for two chips: no layout is kept, and the losses are all points."""
    spec = ModelSpec("large", 50257, 2048, 96, 12288, AttentionSpec(96), MlpSpec(49152))
    recipe, base = Recipe(batch_size=4, precision="bf16"), Strategy(stack="megatron")
    found = search(spec, (recipe,), parse_cluster("h100x2"), asker(spec, base), base=base)
    assert found.best == ()
    assert sum(each.num_points for each in found.losses) == found.num_points


@pytest.mark.parametrize(
    "terms",
    [
        RunTerms(),
        RunTerms(price_per_chip_hour=2.8, evaluation=0.01),
        RunTerms(price_per_chip_hour=1.5, goodput=0.8),
        RunTerms(price_per_chip_hour=1.5, failures_per_chip_hour=1e-3, restart_s=600.0, checkpoint_s=60.0),
    ],
)
def test_an_offer_is_what_its_plan_says(terms):
    """Days, chip-hours and money of each number of chips are those of the full plan, losses in, to the last digit."""
    _, spec, base, recipe = drawn(0)
    clusters = tuple(parse_cluster(f"h100x{number}") for number in (1, 2, 4))
    found = search_chips(spec, (recipe,), clusters, asker(spec, base), terms=terms, base=base)
    assert found.pareto_money
    for offer in found.pareto_money:
        chosen, cluster = offer.candidate, parse_cluster(f"h100x{offer.num_chips}")
        full = plan(spec, chosen.recipe, chosen.strategy, cluster, terms=terms)
        assert (offer.days, offer.chip_hours, offer.money) == (full.days, full.chip_hours, full.money)
        assert full.losses


def test_what_is_heard_of_a_search():
    """Points considered never fall, and at the last are near all points; of several grids they are told as one."""
    _, spec, base, recipe = drawn(0)
    clusters = tuple(parse_cluster(f"h100x{number}") for number in (2, 4, 8))
    heard = []

    def tell(done, in_all, what):
        heard.append((done, in_all, what))

    found = search_chips(spec, (recipe,), clusters, asker(spec, base), base=base, tell=tell)
    assert {(in_all, what) for _, in_all, what in heard} == {(found.num_points, "layouts considered")}
    done = [each for each, _, _ in heard]
    assert done == sorted(done)
    assert 0 < done[-1] <= found.num_points
