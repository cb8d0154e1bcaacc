"""Grids of drawn models looked at point by point: what no bound may exceed, and what the search must find."""

import random
from dataclasses import replace
from itertools import product

from torchledger.machine import parse_cluster
from torchledger.planner.estimator import Estimator
from torchledger.planner.search import search
from torchledger.planner.search_costs import LayoutCosts
from torchledger.planner.search_grid import Axes, Grid
from torchledger.planner.search_kept import plainness
from torchledger.planner.search_walk import Least
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, Recipe, Strategy

STACKS = ("megatron", "fsdp2", "torchtitan", "torchledger", "megatron-2021", "deepspeed", "nanotron", "fsdp1")
#: Sums in another order differ in the last digits.
ROUNDING = 1 + 1e-12


def drawn_model(draw):
    heads = draw.choice((4, 8, 12, 16))
    moe = None
    if draw.random() < 0.35:
        shared, dense = draw.choice((0, 256)), draw.choice((0, 1))
        moe = MoeSpec(
            draw.choice((4, 8)),
            2,
            draw.choice((128, 256)),
            shared_intermediate_size=shared,
            num_leading_dense_layers=dense,
        )
    return ModelSpec(
        "drawn",
        draw.choice((1000, 32000, 50257)),
        4096,
        draw.choice((3, 4, 6, 8)),
        heads * draw.choice((32, 64)),
        AttentionSpec(
            heads,
            num_key_value_heads=draw.choice([each for each in (1, 2, 4, 8) if heads % each == 0]),
            window_pattern=draw.choice(((), (), (256, 0))),
        ),
        MlpSpec(draw.choice((512, 1024)), kind=draw.choice(("gated", "plain"))),
        tied_embeddings=draw.random() < 0.3,
        moe=moe,
    )


def drawn_question(seed, num_chips=(2, 4, 8, 16), **offload):
    """An estimator with the costs and the grid of a drawn model, recipe, cluster and stack, what is offloaded given."""
    draw = random.Random(seed)
    spec, number = drawn_model(draw), draw.choice(num_chips)
    recipe = Recipe(
        batch_size=draw.choice((4, 8, 16)),
        sequence_length=draw.choice((512, 1024)),
        precision=draw.choice(("bf16", "fp32", "bf16-master")),
        attention=draw.choice(("fused", "math")),
        **offload,
    )
    base, axes = Strategy(stack=draw.choice(STACKS)), Axes()
    cluster = parse_cluster(f"{draw.choice(('h100', 'a100'))}x{number}")
    estimator = Estimator(spec, recipe, cluster)
    return draw, estimator, LayoutCosts(estimator, base, axes), Grid(spec, recipe.batch_size, number, base, axes)


def drawn_points(draw, costs, grid, number):
    splits = list(grid.splits())
    for _ in range(number):
        split, size = draw.choice(splits), draw.choice(grid.micro_batch_sizes)
        shape, order = draw.choice(grid.shapes(split)), draw.choice(grid.orders(split))
        sharding = draw.choice(grid.shardings(split))
        strategy = grid.strategy(split, size, shape, order, sharding)
        if not list(costs.refusals(strategy)):
            yield split, size, shape, order, sharding, strategy


def points_under_bounds(draw, costs, grid, number):
    """How many of so many drawn points can be; none of them is below any bound that it is under."""
    asked = 0
    for split, size, shape, order, sharding, strategy in drawn_points(draw, costs, grid, number):
        asked += 1
        estimate = costs.estimate(strategy, shape.recompute)
        shaped, ordered = grid.strategy(split, size, shape), grid.strategy(split, size, shape, order)
        bounds = {
            "split": costs.least_of_split(grid.strategy(split), grid.shapes(split), grid.orders(split)),
            "shape": costs.least_of_shape(shaped, shape.recompute, grid.orders(split)),
            "order alone": costs.least_of_shape(shaped, shape.recompute, (order,)),
            "order": costs.least_of_order(ordered, shape.recompute),
            "pipeline": costs.least_of_pipeline(ordered, shape.recompute, {sharding.kind}),
        }
        for name, bound in bounds.items():
            step_s, peak = bound.pairs[sharding.kind]
            assert step_s <= estimate.step_s * ROUNDING, (name, strategy, shape.recompute)
            assert peak <= estimate.peak_bytes, (name, strategy, shape.recompute)
        assert costs.peak_bytes(strategy, shape.recompute) == estimate.peak_bytes
        smaller = draw.choice([each for each in grid.micro_batch_sizes if each <= size])
        larger = draw.choice([each for each in grid.micro_batch_sizes if each >= size])
        fewest = grid.batch_size // (split.data_parallel * larger)
        if fewest:  # the bound of a range of sizes holds for the one inside
            shaped = grid.strategy(split, smaller, shape)
            assert costs.least_bytes(shaped, shape.recompute, (order,), fewest) <= estimate.peak_bytes
    return asked


class Bold:
    """Costs whose bounds of seconds are too high."""

    def __init__(self, costs, by):
        self._costs, self._by = costs, by

    def __getattr__(self, name):
        found = getattr(self._costs, name)
        if not name.startswith("least_of"):
            return found

        def bolder(*args):
            least = found(*args)
            pairs = {kind: (step_s * self._by, peak) for kind, (step_s, peak) in least.pairs.items()}
            return Least(pairs, least.cause, least.cause_s)

        return bolder


def both_ways(question, by=1.0, recipes=()):
    """(best, front) of the search and of every point."""
    estimator, base, axes = question
    spec, cluster, recipes = estimator.spec, estimator.cluster, recipes or (estimator.recipe,)

    def costs_of(recipe, cluster):
        costs = LayoutCosts(Estimator(spec, recipe, cluster), base, axes)
        return costs if by == 1.0 else Bold(costs, by)

    found = search(spec, recipes, cluster, costs_of, base=base, axes=axes, num_best=8)
    grid = Grid(spec, recipes[0].batch_size, cluster.num_chips, base, axes)
    points = []
    for (variant, recipe), split in product(enumerate(recipes), grid.splits()):
        costs = LayoutCosts(Estimator(spec, recipe, cluster), base, axes) if split == next(grid.splits()) else costs
        choices = product(grid.micro_batch_sizes, grid.shapes(split), grid.orders(split), grid.shardings(split))
        for size, shape, order, sharding in choices:
            strategy = grid.strategy(split, size, shape, order, sharding)
            if list(costs.refusals(strategy)):
                continue
            own = replace(recipe, recompute=shape.recompute)
            estimate = costs.estimate(strategy, shape.recompute)
            points.append((estimate.step_s, estimate.peak_bytes, plainness(strategy, own, variant), strategy, own))
    fitting = sorted(each for each in points if each[1] <= estimator.capacity_bytes)
    front, least = [], None
    for _, peak, _, strategy, own in fitting:
        if least is None or peak < least:
            front.append((strategy, own))
            least = peak
    got = tuple([(each.strategy, each.recipe) for each in kept] for kept in (found.best, found.pareto_memory))
    return got, ([each[3:] for each in fitting[:8]], front), found
