"""`torchledger plan MODEL --search`: the best layout, planned in full, and why the others lost."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torchledger.cli.cluster import says_how_many
from torchledger.cli.failure import DoesNotFit
from torchledger.cli.output import is_quiet, show, show_json
from torchledger.cli.plan_asked import NO_LAYOUT, Layout
from torchledger.cli.plan_files import write_files
from torchledger.cli.plan_layout import (
    full_plan,
    launch_answer,
    launch_blocks,
    launch_of,
    unfilled_text,
    with_blocks,
)
from torchledger.cli.plan_options import typed_options
from torchledger.cli.plan_recipes import recipes_of
from torchledger.cli.progress import Progress
from torchledger.cli.terms import Terms
from torchledger.config import ConfigError
from torchledger.machine import Cluster
from torchledger.planner.constants import Constants
from torchledger.planner.estimator import Estimator
from torchledger.planner.launch import HostsUnfilled, Launch, default_launch
from torchledger.planner.outcome import Plan
from torchledger.planner.rules import refusals
from torchledger.planner.search import NUM_BEST, Found, search, search_chips
from torchledger.planner.search_costs import LayoutCosts
from torchledger.planner.search_grid import Axes, Grid
from torchledger.spec import Recipe
from torchledger.units import UnitError, format_bytes, group_digits, parse_count
from torchledger.view.plan_found import found_to_dict
from torchledger.view.plan_record import asked_to_dict, plan_to_dict, question_to_dict
from torchledger.view.plan_search import layout_text, search_screen
from torchledger.view.screen import Lines, assumed

#: Fields of a strategy that have an axis of the same meaning.
_AXES: Mapping[str, str] = {
    "tensor_parallel": "tensor_parallel",
    "context_parallel": "context_parallel",
    "pipeline_parallel": "pipeline_parallel",
    "data_parallel": "data_parallel",
    "expert_parallel": "expert_parallel",
    "sequence_parallel": "sequence_parallels",
    "reshard": "reshards",
    "micro_batch_size": "micro_batch_sizes",
    "schedule": "schedules",
    "virtual_stages": "virtual_stages",
    "context_kind": "context_kinds",
    "shard_level": "shard_levels",
}

#: Fields that say how many ranks a layout has of each kind.
_RANKS = frozenset(
    {
        "tensor_parallel",
        "context_parallel",
        "pipeline_parallel",
        "data_parallel",
        "expert_parallel",
        "expert_tensor_parallel",
    }
)


def answer_search(
    asked: Layout, constants: Constants, terms: Terms, options: Mapping[str, Any], *, as_json: bool
) -> None:
    """Search, plan the best layout in full, and show both.

    Args:
        asked: the question; what is fixed of its strategy stays.
        constants: of the chip.
        terms: price, power, losses.
        options: of the command.
        as_json: JSON in place of the screen.

    Raises:
        ConfigError: something is fixed that no search can fix, or that no layout of so many chips has.
        DoesNotFit: no layout fits.
    """
    typed = typed_options(options)
    _refuse_sizes(asked, typed)
    start = time.perf_counter()
    found = _search(asked, constants, terms, typed, num_best=max(NUM_BEST, options["top"]))
    seconds = time.perf_counter() - start
    best = found.best[0] if found.best else found.nearest[0] if found.nearest else None
    if best is None:
        _show_reasons(asked, found, seconds, top=options["top"], as_json=as_json)
        raise DoesNotFit(_nothing(found))
    cluster = replace(asked.cluster, num_chips=best.strategy.num_ranks)
    chosen = replace(asked, recipe=best.recipe, strategy=best.strategy, cluster=cluster)
    plan = full_plan(chosen, constants, terms, typed)
    launched = _launched(plan, typed) if found.best else None
    if as_json:
        answer = {"search": found_to_dict(found, seconds=seconds), **plan_to_dict(plan)}
        show_json("plan", question_to_dict(plan), {**answer, **launch_answer(launched)}, plan.assumptions)
    else:
        searched = search_screen(found, top=options["top"], seconds=seconds, currency=terms.currency)
        first, *rest = with_blocks(plan, launch_blocks(launched), terms.currency)
        show((first, *searched, *rest))
    write_files(plan, typed, found=found, currency=terms.currency)
    if not found.best:
        raise DoesNotFit(_nothing(found))


def _launched(plan: Plan, typed: Mapping[str, Any]) -> Launch | str | None:
    """With the stack that was asked for, or with one that can; where nobody asked, why there is no command.

    Raises:
        ConfigError: a stack was asked for and the chips do not fill hosts.
    """
    if typed.get("launch") is not None:
        return launch_of(plan, typed)
    try:
        return default_launch(plan.spec, plan.recipe, plan.strategy, plan.cluster)
    except HostsUnfilled as unfilled:
        return unfilled_text(unfilled, typed)


def _show_reasons(asked: Layout, found: Found, seconds: float, *, top: int, as_json: bool) -> None:
    """Every layout breaks a rule: there is none to plan, and the reasons are the answer."""
    if as_json:
        question = asked_to_dict(asked.spec, asked.recipe, asked.strategy, asked.cluster)
        answer = {"search": found_to_dict(found, seconds=seconds), "fits": False}
        show_json("plan", question, answer, asked.assumptions)
    else:
        chips = f"{group_digits(asked.cluster.num_chips)} × {asked.cluster.chip.name}"
        title = Lines((f"{asked.spec.name} on {chips}: no layout can be",), mark="warning")
        screen = search_screen(found, top=top, seconds=seconds)
        show((title, *screen, *assumed(asked.assumptions)))


def _search(asked: Layout, constants: Constants, terms: Terms, typed: Mapping[str, Any], *, num_best: int) -> Found:
    """On the chips that there are, or on each of several numbers of them."""
    axes = axes_of(asked)

    def costs(recipe: Recipe, cluster: Cluster) -> LayoutCosts:
        return LayoutCosts(Estimator(asked.spec, recipe, cluster, constants=constants), asked.strategy, axes)

    spec, recipes = asked.spec, recipes_of(asked.recipe, typed)
    clusters = _clusters(asked, typed)
    # one bound rules out a million layouts, another costs as long for one: how far it is says not how long it will be
    progress = Progress(quiet=is_quiet() or not sys.stderr.isatty(), foretells=False)
    more: dict[str, Any] = {"base": asked.strategy, "axes": axes, "num_best": num_best, "tell": progress}
    try:
        if clusters is None:
            return search(spec, recipes, asked.cluster, costs, **more)
        return search_chips(spec, recipes, clusters, costs, terms=terms.run, **more)
    finally:
        progress.close()


def _clusters(asked: Layout, typed: Mapping[str, Any]) -> tuple[Cluster, ...] | None:
    """One of each of the numbers of chips; nothing where none are given.

    Raises:
        ConfigError: a number that is none, none that `--on` or `--chips` says, or a time between failures, which is
            of one number of chips.
    """
    if (text := typed.get("sizes")) is None:
        return None
    sizes = sizes_of(text)
    on, chips = typed.get("cluster"), asked.cluster.num_chips
    is_said = on is not None and ("num_chips" in typed or says_how_many(on, typed.get("catalog_files", ())))
    if is_said and chips not in sizes:
        remedy = f"has no {chips}, the number that --on or --chips says; leave the number out there: --on CHIP"
        raise ConfigError("plan --search", [("--sizes", remedy)])
    if typed.get("failure_every") is not None and sizes != (asked.cluster.num_chips,):
        remedy = "is of one number of chips, and --sizes has others; leave it out, or say --goodput"
        raise ConfigError("plan --search", [("--failure-every", remedy)])
    return tuple(replace(asked.cluster, num_chips=number) for number in sizes)


def sizes_of(text: str) -> tuple[int, ...]:
    """Numbers of chips, `256,512,1k`.

    Raises:
        ConfigError: a number that is none, or is below 1; all of them.
    """
    numbers, mistakes = [], []
    for word in text.split(","):
        try:
            numbers.append(parse_count(word))
        except UnitError as error:
            mistakes.append(("--sizes", str(error)))
    mistakes += [("--sizes", f"at least 1 chip, not {number}") for number in numbers if number < 1]
    if mistakes:
        raise ConfigError("plan --search", mistakes)
    return tuple(sorted(set(numbers)))


def _refuse_sizes(asked: Layout, typed: Mapping[str, Any]) -> None:
    """Refuse numbers of ranks that are no layout of the chips, for the reason that they are none without a search.

    Raises:
        ConfigError: the grid of every number of chips is empty.
    """
    reasons: dict[str, None] = {}
    for cluster in _clusters(asked, typed) or (asked.cluster,):
        if any(Grid(asked.spec, asked.recipe.batch_size, cluster.num_chips, asked.strategy, axes_of(asked)).splits()):
            return
        layout = asked.strategy
        if "data_parallel" not in asked.fixed:
            taken = layout.tensor_parallel * layout.pipeline_parallel * layout.context_parallel
            layout = replace(layout, data_parallel=max(1, cluster.num_chips // taken))
        broken = [each for each in refusals(asked.spec, asked.recipe, layout, cluster) if each.fields <= _RANKS]
        # what nobody gave is no reason by itself
        reasons |= dict.fromkeys(each.text for each in broken if each.fields - ({"data_parallel"} - asked.fixed))
    raise ConfigError("plan", [("", text) for text in reasons])


def axes_of(asked: Layout) -> Axes:
    """The grid's axes; one that is fixed has one value.

    Raises:
        ConfigError: a field is fixed that has no axis.
    """
    fixed = asked.fixed
    without = sorted(fixed - _AXES.keys() - NO_LAYOUT - {"recompute"})
    if without:
        remedy = "a search decides it by itself: leave it out, or give the whole layout without --search"
        raise ConfigError("plan --search", [(f"strategy.{name}", remedy) for name in without])
    values: dict[str, Any] = {_AXES[name]: (getattr(asked.strategy, name),) for name in fixed if name in _AXES}
    if "recompute" in fixed:
        values["recomputes"] = (asked.recipe.recompute,)
    return Axes(**values)


def _nothing(found: Found) -> str:
    """How far the nearest layout is from fitting."""
    if not found.nearest or found.capacity_bytes is None:
        return "no layout can be: every one breaks a rule; the reasons are in the table"
    nearest = found.nearest[0]
    missing = format_bytes(nearest.estimate.peak_bytes - found.capacity_bytes)
    return (
        f"no layout fits: the nearest ({layout_text(nearest, found)}) needs"
        f" {format_bytes(nearest.estimate.peak_bytes)} of {format_bytes(found.capacity_bytes)} a chip, {missing} too"
        " much; take more or larger chips, a smaller batch or sequence, or --precision with less state"
    )
