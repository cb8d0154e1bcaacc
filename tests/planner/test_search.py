"""The search answers what looking at every point of the grid answers."""

import random
from dataclasses import dataclass, replace
from itertools import product

import pytest

from torchledger.machine import parse_cluster
from torchledger.planner import PlanError
from torchledger.planner.outcome import Estimate
from torchledger.planner.search import AS_FAST, search, search_chips
from torchledger.planner.search_grid import Axes, Grid, divisors
from torchledger.planner.search_kept import plainness
from torchledger.planner.search_walk import Least
from torchledger.planner.terms import RunTerms
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, Recipe, Strategy


@dataclass(frozen=True)
class Rule:
    reason: str
    fields: frozenset


@dataclass(frozen=True)
class Analytic:
    """A cost model small enough to see through, with every kind of trade that the real one has.

    Arithmetic shrinks with tp, cp and pp and runs better on large micro-batches; tp pays for its exchanges, pp for its
    bubble, cp by its kind, sharding by gathering; recompute buys activations with time.
    """

    spec: ModelSpec
    recipe: Recipe
    num_chips: int
    capacity_bytes: int | None
    state_bytes: float = 16e9
    kept_bytes: float = 4e9
    link_s: float = 0.05
    #: what the bounds are multiplied with: above 1 they are none
    boldness: float = 1.0

    def refusals(self, strategy):
        """Divisibility, and one rule of two fields."""
        if self.spec.attention.num_heads % strategy.tensor_parallel:
            yield Rule("heads over tensor parallel ranks", frozenset({"tensor_parallel"}))
        if self.recipe.batch_size % (strategy.data_parallel * strategy.micro_batch_size):
            yield Rule("batch over replicas", frozenset({"data_parallel", "micro_batch_size"}))
        if self.spec.num_layers % (strategy.pipeline_parallel * strategy.virtual_stages):
            yield Rule("layers over stages", frozenset({"pipeline_parallel", "virtual_stages"}))
        if strategy.schedule == "interleaved" and self._num_micro_batches(strategy) % strategy.pipeline_parallel:
            fields = {"schedule", "pipeline_parallel", "data_parallel", "micro_batch_size"}
            yield Rule("micro-batches over stages of an interleaved schedule", frozenset(fields))
        if self.spec.moe and self.spec.moe.num_experts % strategy.expert_parallel:
            yield Rule("experts over expert parallel ranks", frozenset({"expert_parallel"}))
        if strategy.shard_level == 3 and strategy.pipeline_parallel > 1:
            yield Rule("level 3 with stages", frozenset({"shard_level", "pipeline_parallel"}))

    def _num_micro_batches(self, strategy):
        return max(1, self.recipe.batch_size // (strategy.data_parallel * strategy.micro_batch_size))

    def _micro_batch_s(self, strategy, recompute):
        again = {"none": 0.0, "selective": 0.1, "full": 1.0}[recompute]
        ranks = strategy.tensor_parallel * strategy.context_parallel * strategy.pipeline_parallel
        compute = strategy.micro_batch_size * (3 + again) / ranks * (1 + 0.3 / strategy.micro_batch_size)
        exchange = strategy.micro_batch_size * self.link_s * (strategy.tensor_parallel - 1)
        exchange /= strategy.context_parallel * strategy.pipeline_parallel
        exchange *= 0.9 if strategy.sequence_parallel else 1.0
        around = {"ring": 0.02, "all-gather": 0.03, "ulysses": 0.01}[strategy.context_kind]
        around *= strategy.micro_batch_size * (strategy.context_parallel - 1) / strategy.pipeline_parallel
        return compute + exchange + around

    def _bubble(self, strategy):
        stages = strategy.pipeline_parallel - 1
        shares = {"gpipe": 1, "1f1b": 1, "zero-bubble": 0.6, "dualpipe": 0.5}
        return stages * shares.get(strategy.schedule, 1 / strategy.virtual_stages)

    def _in_flight(self, strategy):
        count, stages = self._num_micro_batches(strategy), strategy.pipeline_parallel
        most = {"gpipe": count, "dualpipe": stages + 1, "interleaved": stages + stages / strategy.virtual_stages}
        return min(count, most.get(strategy.schedule, stages))

    def _kept(self, strategy, recompute):
        share = {"none": 1.0, "selective": 0.7, "full": 0.1}[recompute]
        split = strategy.tensor_parallel if strategy.sequence_parallel else (1 + strategy.tensor_parallel) / 2
        ranks = split * strategy.context_parallel * strategy.pipeline_parallel
        return self.kept_bytes * strategy.micro_batch_size * share / ranks

    def _state(self, strategy):
        experts = 1 + 0.5 * (1 / strategy.expert_parallel - 1) if self.spec.moe else 1.0
        here = self.state_bytes * experts / (strategy.tensor_parallel * strategy.pipeline_parallel)
        shared = {0: 0, 1: 0.75, 2: 0.875, 3: 1}[strategy.shard_level]
        return here * (1 - shared + shared / strategy.num_sharers)

    def estimate(self, strategy, recompute):
        """Exact."""
        each = self._micro_batch_s(strategy, recompute)
        sharing = 0.02 * strategy.shard_level / (strategy.shard_group or strategy.data_parallel)
        sharing += 0.05 * each if strategy.shard_level == 3 and strategy.reshard else 0.0
        step_s = each * (self._num_micro_batches(strategy) + self._bubble(strategy)) + sharing
        gathered = 2e9 if strategy.shard_level == 3 and not strategy.reshard else 0.0
        peak = self._state(strategy) + gathered + self._kept(strategy, recompute) * self._in_flight(strategy)
        return Estimate(step_s, int(peak))

    def causes(self, strategy, recompute):
        """All of it to one of two."""
        step_s = self.estimate(strategy, recompute).step_s
        return {"exchange" if strategy.tensor_parallel > 1 else "compute": step_s}

    def peak_bytes(self, strategy, recompute):
        """Exact."""
        return self.estimate(strategy, recompute).peak_bytes

    def least_of_order(self, strategy, recompute):
        """Whatever the sharding."""
        step_s = self._micro_batch_s(strategy, recompute) * (self._num_micro_batches(strategy) + self._bubble(strategy))
        sharded = replace(strategy, shard_level=3)
        peak = self._state(sharded) + self._kept(strategy, recompute) * self._in_flight(strategy)
        return Least.of_any(step_s * self.boldness, int(peak) * self.boldness, "schedule", 0.0)

    def least_of_pipeline(self, strategy, recompute, _kinds):
        """No closer."""
        return self.least_of_order(strategy, recompute)

    def least_of_shape(self, strategy, recompute, _orders):
        """Whatever the schedule."""
        count = self._num_micro_batches(strategy)
        step_s = self._micro_batch_s(strategy, recompute) * count
        in_flight = min(count, strategy.pipeline_parallel)
        peak = self._state(replace(strategy, shard_level=3)) + self._kept(strategy, recompute) * in_flight
        return Least.of_any(step_s * self.boldness, int(peak) * self.boldness, "micro-batches", 0.0)

    def least_bytes(self, strategy, recompute, _orders, number):
        """Whatever the schedule, of so many micro-batches."""
        in_flight = min(number, strategy.pipeline_parallel)
        least = self._state(replace(strategy, shard_level=3)) + self._kept(strategy, recompute) * in_flight
        return int(least) * self.boldness

    def least_of_split(self, strategy, _shapes, _orders):
        """Whatever the micro-batch."""
        step_s = 3 * self.recipe.batch_size / self.num_chips
        peak = self._state(replace(strategy, shard_level=3))
        return Least.of_any(step_s * self.boldness, int(peak) * self.boldness, "arithmetic", 0.0)


def tiny(num_layers, num_heads, moe):
    experts = MoeSpec(8, 2, 64) if moe else None
    return ModelSpec("tiny", 100, 64, num_layers, 64, AttentionSpec(num_heads), MlpSpec(128), moe=experts)


def always(costs):
    """The same costs for whatever recipe and cluster."""
    return lambda _recipe, _cluster: costs


def every_point(grid, recipe, costs):
    """All points that break no rule, with what each costs, the slow way."""
    for split, size in product(grid.splits(), grid.micro_batch_sizes):
        for shape, order, sharding in product(grid.shapes(split), grid.orders(split), grid.shardings(split)):
            strategy = grid.strategy(split, size, shape, order, sharding)
            if not list(costs.refusals(strategy)):
                yield strategy, replace(recipe, recompute=shape.recompute), costs.estimate(strategy, shape.recompute)


def brute_force(grid, recipe, costs, num_best):
    points = [
        (estimate.step_s, estimate.peak_bytes, plainness(strategy, asked, 0), strategy, asked)
        for strategy, asked, estimate in every_point(grid, recipe, costs)
    ]
    fitting = sorted(each for each in points if costs.capacity_bytes is None or each[1] <= costs.capacity_bytes)
    best = [each[3:] for each in fitting[:num_best]]
    front, least = [], None
    for _, peak, _, strategy, asked in fitting:
        if least is None or peak < least:
            front.append((strategy, asked))
            least = peak
    nearest = sorted(points, key=lambda each: (each[1], each[0], each[2]))[:num_best]
    return best, front, [each[3:] for each in nearest] if not best else []


def drawn(seed):
    """A model, a recipe, a grid and costs, drawn."""
    draw = random.Random(seed)
    spec = tiny(draw.choice((4, 6, 8)), draw.choice((2, 4, 6)), draw.random() < 0.3)
    recipe = Recipe(batch_size=draw.choice((4, 8, 12)))
    num_chips = draw.choice((2, 4, 6, 8) if spec.moe is None else (2, 4))
    costs = Analytic(
        spec,
        recipe,
        num_chips,
        draw.choice((None, int(1e9), int(4e9), int(8e9), int(30e9))),
        link_s=draw.choice((0.001, 0.05, 0.5)),
        kept_bytes=draw.choice((1e8, 4e9)),
    )
    return spec, recipe, num_chips, costs


def answers(seed, boldness=1.0):
    spec, recipe, num_chips, costs = drawn(seed)
    costs = replace(costs, boldness=boldness)
    cluster = parse_cluster(f"h100x{num_chips}")
    found = search(spec, (recipe,), cluster, always(costs), num_best=5)
    grid = Grid(spec, recipe.batch_size, num_chips, Strategy(), Axes())
    expected = brute_force(grid, recipe, costs, 5)
    got = tuple(
        [(each.strategy, each.recipe) for each in kept] for kept in (found.best, found.pareto_memory, found.nearest)
    )
    return found, got, expected


@pytest.mark.parametrize("seed", range(24))
def test_the_search_finds_what_looking_at_every_point_finds(seed):
    """Best, front and, where nothing fits, nearest misses are those of all points, equal ones in the stated order."""
    _, got, expected = answers(seed)
    assert got == expected


def test_a_bound_that_is_none_loses_something():
    """The comparison with all points notices bounds that are a third too high: it is no test that cannot fail."""
    differing = [seed for seed in range(24) if answers(seed, boldness=1.35)[1] != answers(seed)[2]]
    assert len(differing) >= 3


@pytest.mark.parametrize("seed", range(8))
def test_every_point_is_considered_once_and_has_one_fate(seed):
    """Points kept and points lost, by reason, are the points of the grid."""
    found, _, _ = answers(seed)
    kept = set(found.best) | set(found.pareto_memory)
    assert found.num_considered == found.num_points
    assert sum(loss.num_points for loss in found.losses) + len(kept) == found.num_points
    assert found.num_evaluated <= found.num_points


@pytest.mark.parametrize(("num_layers", "num_chips", "batch_size"), [(4, 8, 12), (6, 6, 8), (1, 2, 1)])
def test_counting_the_grid_is_enumerating_it(num_layers, num_chips, batch_size):
    """The number of points is that of points listed one by one, and none is listed twice."""
    grid = Grid(tiny(num_layers, 4, True), batch_size, num_chips, Strategy(), Axes())
    points = [
        (split, size, shape, order, sharding)
        for split, size in product(grid.splits(), grid.micro_batch_sizes)
        for shape, order, sharding in product(grid.shapes(split), grid.orders(split), grid.shardings(split))
    ]
    assert len(points) == grid.num_points == len(set(points))
    assert all(grid.strategy(*point[:2], *point[2:]).num_ranks == num_chips for point in points)


def test_the_grid_of_gpt3_on_64_chips_has_millions_of_points():
    """96 layers, 64 chips, batch 1,536: 84 splits of the chips and every other axis in full."""
    spec = ModelSpec("gpt3", 51200, 2048, 96, 12288, AttentionSpec(96), MlpSpec(49152, kind="plain"))
    grid = Grid(spec, 1536, 64, Strategy(), Axes())
    # 64 = 2^6 spread over tp, cp, pp, dp: C(6 + 3, 3) ways
    assert len(list(grid.splits())) == 9 * 8 * 7 // 6
    assert len(grid.micro_batch_sizes) == (9 + 1) * (1 + 1)  # 1,536 = 2^9 · 3
    assert grid.num_points > 1_000_000


def test_an_asked_axis_has_only_what_was_asked():
    """A choice that is not on an axis is in no answer, and the axes shown are those searched."""
    spec, recipe, _, costs = drawn(0)
    axes = Axes(tensor_parallel=(1,), recomputes=("full",), schedules=("gpipe",), shard_levels=(0, 1))
    costs = replace(costs, capacity_bytes=None, num_chips=4)
    found = search(spec, (recipe,), parse_cluster("h100x4"), always(costs), axes=axes)
    assert {each.strategy.tensor_parallel for each in found.best} == {1}
    assert {each.recipe.recompute for each in found.best} == {"full"}
    assert dict(found.axes)["recompute"] == "full"
    assert dict(found.axes)["tensor parallel"] == "1"


def test_where_nothing_fits_the_nearest_misses_are_told_with_what_they_lack():
    """With a millionth of the memory the answer is empty, the nearest hold least, and memory is what all lose by."""
    spec, recipe, num_chips, costs = drawn(3)
    costs = replace(costs, capacity_bytes=1000)
    found = search(spec, (recipe,), parse_cluster(f"h100x{num_chips}"), always(costs))
    assert found.best == found.pareto_memory == ()
    peaks = [each.estimate.peak_bytes for each in found.nearest]
    assert peaks == sorted(peaks)
    assert min(peaks) > found.capacity_bytes == 1000
    memory = [loss for loss in found.losses if loss.kind == "memory"]
    assert memory
    # a bound may say less than the layout that is nearest lacks, never more
    assert all(loss.missing_bytes > 0 for loss in memory)
    assert min(loss.missing_bytes for loss in memory) <= min(peaks) - 1000


def test_equal_layouts_stand_plainest_first():
    """Where cost says nothing, fewer exotic features come first: data parallel alone before anything else."""

    @dataclass(frozen=True)
    class Same(Analytic):
        def estimate(self, _strategy, _recompute):
            return Estimate(1.0, 1000)

    spec, recipe = tiny(4, 4, False), Recipe(batch_size=8)
    costs = Same(spec, recipe, 4, None, boldness=0.0)
    found = search(spec, (recipe,), parse_cluster("h100x4"), always(costs))
    first = found.best[0]
    assert first.strategy == Strategy(data_parallel=4, micro_batch_size=2)
    assert first.recipe.recompute == "none"
    assert found.pareto_memory == (first,)


def test_a_runner_up_names_what_it_loses_most_seconds_by():
    """The cause of a layout behind the first is that in which it has most seconds more, nothing where it is as fast."""
    spec, recipe = tiny(4, 4, False), Recipe(batch_size=8)
    costs = Analytic(spec, recipe, 4, None)
    found = search(spec, (recipe,), parse_cluster("h100x4"), always(costs))
    first = found.best[0]
    for each in found.best[1:]:
        if each.estimate.step_s == first.estimate.step_s:
            assert each.loses_by == AS_FAST
        else:
            is_split = each.strategy.tensor_parallel > 1
            assert each.loses_by == ("exchange" if is_split else "compute")
    assert first.loses_by == ""
    assert "compute" in {each.loses_by for each in found.best[1:]}


def test_a_changed_recipe_is_an_axis():
    """Two precisions are searched together; the one that costs less wins, and the points double."""
    spec, recipe = tiny(4, 4, False), Recipe(batch_size=8, precision="bf16")
    half = replace(recipe, precision="fp8")

    def costs(recipe, cluster):
        factor = 2.0 if recipe.precision == "fp8" else 4.0
        return Analytic(spec, recipe, cluster.num_chips, None, state_bytes=factor * 1e9)

    found = search(spec, (recipe, half), parse_cluster("h100x4"), costs)
    alone = search(spec, (recipe,), parse_cluster("h100x4"), costs)
    assert found.num_points == 2 * alone.num_points
    assert dict(found.axes)["precision"] == "bf16, fp8"
    assert {each.recipe.precision for each in found.pareto_memory} == {"fp8"}


def test_days_against_chip_hours_over_numbers_of_chips():
    """More chips are faster and cost more chip-hours; a number that is worse in both is not on the front."""
    spec = tiny(4, 4, False)
    recipe = Recipe(batch_size=8, sequence_length=10, num_tokens=8000)
    clusters = tuple(parse_cluster(f"h100x{number}") for number in (1, 2, 4, 8))

    def costs(recipe, cluster):
        return Analytic(spec, recipe, cluster.num_chips, None)

    terms = RunTerms(price_per_chip_hour=2.5, goodput=0.8)
    found = search_chips(spec, (recipe,), clusters, costs, terms=terms)
    for offer in found.pareto_money:
        steps = 8000 // (8 * 10)
        assert offer.days == pytest.approx(steps * offer.candidate.estimate.step_s / 0.8 / 86400)
        assert offer.chip_hours == pytest.approx(offer.days * 24 * offer.num_chips)
        assert offer.money == pytest.approx(offer.chip_hours * 2.5)
        assert offer.candidate.strategy.num_ranks == offer.num_chips
    days = [offer.days for offer in found.pareto_money]
    hours = [offer.chip_hours for offer in found.pareto_money]
    assert days == sorted(days)
    assert hours == sorted(hours, reverse=True)
    assert len(found.pareto_money) > 1
    kept = set(found.best) | set(found.pareto_memory)
    assert sum(loss.num_points for loss in found.losses) + len(kept) == found.num_points


def test_a_question_that_cannot_be_searched_is_refused():
    """Days need tokens, times of different batches do not compare, and no chips is no question."""
    spec, recipe = tiny(4, 4, False), Recipe(batch_size=8)
    cluster = parse_cluster("h100x2")
    costs = always(Analytic(spec, recipe, 2, None))
    with pytest.raises(PlanError, match="tokens"):
        search_chips(spec, (recipe,), (cluster,), costs)
    with pytest.raises(PlanError, match="number of chips"):
        search_chips(spec, (recipe,), (), costs)
    with pytest.raises(PlanError, match="same batch"):
        search(spec, (recipe, replace(recipe, batch_size=4)), cluster, costs)
    with pytest.raises(PlanError, match="no recipe"):
        search(spec, (), cluster, costs)


def test_divisors():
    """A square root stands once."""
    assert divisors(36) == (1, 2, 3, 4, 6, 9, 12, 18, 36)
