"""`search`: the best layouts of a model on a cluster, the fronts, and what every other layout loses by.

search_grid.py  the axes and the points
search_walk.py  branch and bound: which points are looked at, which subtrees are cut
search_kept.py  the best, the front, and the tally of the rest
bound.py        what no layout of a subtree can be below
pareto.py       fronts

Every point of the grid is considered: evaluated, or ruled out with its subtree by a shape rule that holds for all of it
or by a bound that no point of it can beat. The answer is that of looking at every point.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from torchledger.machine import Cluster
from torchledger.planner.errors import PlanError
from torchledger.planner.losses import losses_of_run
from torchledger.planner.pareto import pareto
from torchledger.planner.search_grid import Axes, Grid
from torchledger.planner.search_kept import Candidate, Keeper, Loss, Tally
from torchledger.planner.search_walk import Costs, Walk
from torchledger.planner.terms import RunTerms
from torchledger.spec import ModelSpec, Recipe, Strategy

#: How many layouts are ranked.
NUM_BEST = 20
#: What a layout that is as fast as the winner loses by.
AS_FAST = "nothing: as fast, and less plain"

#: Called now and then with points considered, all points, and what is looked for.
Tell = Callable[[int, int, str], None]
_Variants = tuple[tuple[Recipe, Costs], ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """The fastest layout of a number of chips.

    Attributes:
        num_chips: how many.
        candidate: the layout.
        days: of the whole run, with what it loses outside of its steps; those of the full plan.
        chip_hours: of the same.
        money: nothing without a price.
    """

    num_chips: int
    candidate: Candidate
    days: float
    chip_hours: float
    money: float | None


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    Attributes:
        best: the fastest layouts that fit, in order; equal ones plainer first. All but the first say what they lose by.
        pareto_memory: layouts that fit and that no other beats in both time and memory, fastest first; the same of
            them.
        pareto_money: where several numbers of chips were asked: the fastest layout of each, without those that another
            number beats in both days and chip-hours (so in days and money, too), fewest days first.
        nearest: where nothing fits: the layouts that hold least.
        capacity_bytes: what a rank may use; nothing where it is unknown.
        num_points: points of the grid.
        num_considered: points evaluated or ruled out; all of them.
        num_evaluated: points whose seconds and bytes were computed.
        axes: the choices on each axis, as text.
        losses: what the others lose by, most points first; with `best` and `pareto_memory` they are all points.
    """

    best: tuple[Candidate, ...]
    pareto_memory: tuple[Candidate, ...]
    pareto_money: tuple[Offer, ...]
    nearest: tuple[Candidate, ...]
    capacity_bytes: int | None
    num_points: int
    num_considered: int
    num_evaluated: int
    axes: tuple[tuple[str, str], ...]
    losses: tuple[Loss, ...]


def search(
    spec: ModelSpec,
    recipes: tuple[Recipe, ...],
    cluster: Cluster,
    costs: Callable[[Recipe, Cluster], Costs],
    *,
    base: Strategy | None = None,
    axes: Axes | None = None,
    num_best: int = NUM_BEST,
    tell: Tell | None = None,
) -> Found:
    """Search the whole grid.

    Args:
        spec: the model.
        recipes: the recipe; several, equal but for precision or offload, make that an axis too (the first is preferred
            where two cost the same).
        cluster: where it runs; the layouts use all its chips.
        costs: what a layout costs under a recipe on a cluster.
        base: what no axis decides: the stack, overlaps, prefetch.
        axes: the choices on the grid.
        num_best: how many of the best are ranked.
        tell: hears how far it is.

    Raises:
        PlanError: no recipe, or recipes of different batches or lengths.
    """
    _require_same_work(recipes)
    variants = tuple((recipe, costs(recipe, cluster)) for recipe in recipes)
    grid = Grid(spec, recipes[0].batch_size, cluster.num_chips, base or Strategy(), axes or Axes())
    found = _search(grid, variants, num_best, tell)
    return _with_reasons(found, lambda each: _causes(each, variants))


def _search(grid: Grid, variants: _Variants, num_best: int, tell: Tell | None) -> Found:
    recipes = tuple(recipe for recipe, _ in variants)
    num_points = grid.num_points * len(recipes)
    walk = Walk(grid, variants, Keeper(num_best), tell=_heard(tell, num_points, "layouts considered"))
    with _uncollected():
        walk.run()
    keeper, tally = walk.keeper, walk.tally
    return Found(
        best=keeper.best,
        pareto_memory=keeper.front.items,
        pareto_money=(),
        nearest=() if keeper.best else _nearest(grid, variants, num_best, _heard(tell, num_points, "nearest misses")),
        capacity_bytes=variants[0][1].capacity_bytes,
        num_points=num_points,
        num_considered=tally.num_considered,
        num_evaluated=tally.num_evaluated,
        axes=grid.rows(recipes),
        losses=tally.rows(keeper.kept),
    )


def search_chips(
    spec: ModelSpec,
    recipes: tuple[Recipe, ...],
    clusters: tuple[Cluster, ...],
    costs: Callable[[Recipe, Cluster], Costs],
    *,
    terms: RunTerms | None = None,
    base: Strategy | None = None,
    axes: Axes | None = None,
    num_best: int = NUM_BEST,
    tell: Tell | None = None,
) -> Found:
    """Search several numbers of chips: the best of all of them, and the front of days against chip-hours.

    Days and chip-hours are those of the full plans under the same terms: with what a run loses outside of its steps.

    Raises:
        PlanError: no number of chips, no tokens in the recipe (days need them), recipes of different work, or terms
            that cannot be.
    """
    if not clusters:
        raise PlanError("no number of chips to search; give at least one")
    _require_same_work(recipes)
    if not recipes[0].num_tokens:
        raise PlanError("days against money needs the tokens of the run; give them (--tokens 15T), or fix the chips")
    variants = {each.num_chips: tuple((recipe, costs(recipe, each)) for recipe in recipes) for each in clusters}
    base, axes = base or Strategy(), axes or Axes()
    grids = [Grid(spec, recipes[0].batch_size, each.num_chips, base, axes) for each in clusters]
    num_points = sum(grid.num_points for grid in grids) * len(recipes)
    found: list[Found] = []
    for grid in grids:
        before = sum(each.num_points for each in found)
        found.append(_search(grid, variants[grid.num_chips], num_best, _after(before, num_points, tell)))
    terms = terms or RunTerms()
    offers = [
        _offer(spec, cluster, each.best[0], terms) for cluster, each in zip(clusters, found, strict=True) if each.best
    ]
    kept, tally = Keeper(num_best), Tally()
    for each in found:
        for candidate in dict.fromkeys((*each.best, *each.pareto_memory)):
            kept.offer(candidate, 0)
            tally.lose("time", candidate.cause, 1)  # until it turns out to be kept
        for loss in each.losses:
            tally.lose(loss.kind, loss.reason, loss.num_points, loss.missing_bytes or math.inf)
    nearest = Keeper(num_best, by_memory=True)
    for candidate in (candidate for each in found for candidate in each.nearest):
        nearest.offer(candidate, 0)
    together = Found(
        best=kept.best,
        pareto_memory=kept.front.items,
        pareto_money=pareto(offers, lambda each: (each.days, each.chip_hours)),
        nearest=() if kept.best else nearest.best,
        capacity_bytes=found[0].capacity_bytes,
        num_points=num_points,
        num_considered=sum(each.num_considered for each in found),
        num_evaluated=sum(each.num_evaluated for each in found),
        axes=(("chips", ", ".join(str(each.num_chips) for each in clusters)), *found[-1].axes),
        losses=tally.rows(kept.kept),
    )
    return _with_reasons(together, lambda each: _causes(each, variants[each.strategy.num_ranks]))


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the search for cycles of garbage, of which a walk makes none.

    It remembers hundreds of thousands of small tuples, and looking through all of them again and again takes a sixth of
    its time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _heard(tell: Tell | None, num_points: int, what: str) -> Callable[[int], None] | None:
    """What a walk calls."""
    return None if tell is None else lambda done: tell(done, num_points, what)


def _after(before: int, num_points: int, tell: Tell | None) -> Tell | None:
    """Tell of one of several grids, of which so many points are done."""
    return None if tell is None else lambda done, _own, what: tell(before + done, num_points, what)


def _with_reasons(found: Found, causes: Callable[[Candidate], Mapping[str, float]]) -> Found:
    """The runners-up, ranked or on the front, with the cause by which each loses most seconds against the winner."""
    if not found.best:
        return found
    winner, first = causes(found.best[0]), found.best[0]
    reasons = {first: ""}

    def reasoned(candidate: Candidate) -> Candidate:
        if candidate not in reasons:
            reasons[candidate] = AS_FAST
            if candidate.estimate.step_s != first.estimate.step_s:
                more = {cause: seconds - winner.get(cause, 0.0) for cause, seconds in causes(candidate).items()}
                reasons[candidate] = max(more, key=lambda cause: more[cause])
        return replace(candidate, loses_by=reasons[candidate])

    best, front = (tuple(map(reasoned, each)) for each in (found.best, found.pareto_memory))
    return replace(found, best=best, pareto_memory=front)


def _causes(candidate: Candidate, variants: _Variants) -> Mapping[str, float]:
    """What the seconds of a candidate are for, from the costs of its own recipe."""
    own = replace(candidate.recipe, recompute="none")
    costs = next(costs for recipe, costs in variants if replace(recipe, recompute="none") == own)
    return costs.causes(candidate.strategy, candidate.recipe.recompute)


def _require_same_work(recipes: tuple[Recipe, ...]) -> None:
    if not recipes:
        raise PlanError("no recipe to search with; give at least one")
    work = {(each.batch_size, each.sequence_length, each.num_tokens) for each in recipes}
    if len(work) > 1:
        raise PlanError(
            "recipes of one search must have the same batch, sequence length and tokens: their times compare"
        )


def _nearest(
    grid: Grid, variants: _Variants, num_best: int, tell: Callable[[int], None] | None
) -> tuple[Candidate, ...]:
    """Nothing fits: the layouts that hold least, whatever they have room for."""
    walk = Walk(grid, variants, Keeper(num_best, by_memory=True), is_limited=False, tell=tell)
    with _uncollected():
        walk.run()
    return walk.keeper.best


def _offer(spec: ModelSpec, cluster: Cluster, candidate: Candidate, terms: RunTerms) -> Offer:
    run_s = candidate.estimate.step_s * max(1, candidate.recipe.num_steps)
    lost = losses_of_run(spec, cluster, run_s, terms)
    chip_hours = cluster.num_chips * lost.wall_s / 3600
    price = terms.price_per_chip_hour
    money = None if price is None else price * chip_hours
    return Offer(cluster.num_chips, candidate, lost.wall_s / 86400, chip_hours, money)
