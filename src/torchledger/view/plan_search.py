"""The screen of a search: how many layouts were considered, the best, why the others lost, and the fronts."""

from __future__ import annotations

from collections.abc import Sequence

from torchledger.planner.search import Found
from torchledger.planner.search_grid import offload_text
from torchledger.planner.search_kept import Candidate, Loss
from torchledger.spec import Recipe, Strategy
from torchledger.units import (
    format_bytes,
    format_duration,
    format_money,
    format_number,
    format_percent,
    group_digits,
)
from torchledger.view.screen import Block, Facts, Lines, Row, Table

_MOST_LOSSES = 12
_MOST_ON_A_FRONT = 12


def search_screen(
    found: Found, *, top: int = 10, seconds: float | None = None, currency: str = "USD"
) -> tuple[Block, ...]:
    """What was found; the best layout itself is planned on a screen of its own.

    Args:
        found: the result.
        top: how many of the best are listed.
        seconds: that the search took.
        currency: of its money.
    """
    return (
        Lines((_considered(found, seconds),), mark="" if found.best else "warning"),
        *_ranking(found, top),
        *_front(found),
        *_offers(found, currency),
        *_losses(found.losses),
        Facts(found.axes, "axes of the grid"),
    )


def strategy_text(strategy: Strategy, recipe: Recipe) -> str:
    """A layout in one short line, as people say it in the field; what is 1 or off is left out.

    >>> strategy_text(Strategy(data_parallel=4, tensor_parallel=8, sequence_parallel=True, shard_level=1,
    ...     micro_batch_size=2), Recipe(recompute="full"))
    'tp8 sp dp4 zero1 mb2 recompute full'
    """
    words = []
    if strategy.tensor_parallel > 1:
        words.append(f"tp{strategy.tensor_parallel}")
    if strategy.sequence_parallel:
        words.append("sp")
    if strategy.context_parallel > 1:
        words.append(f"cp{strategy.context_parallel} {strategy.context_kind}")
    if strategy.pipeline_parallel > 1:
        chunks = f" vp{strategy.virtual_stages}" if strategy.virtual_stages > 1 else ""
        words.append(f"pp{strategy.pipeline_parallel} {strategy.schedule}{chunks}")
    if strategy.expert_parallel > 1:
        words.append(f"ep{strategy.expert_parallel}")
    if strategy.expert_tensor_parallel:
        words.append(f"etp{strategy.expert_tensor_parallel}")
    words.append(f"dp{strategy.data_parallel}")
    if strategy.shard_level:
        group = f"/{strategy.shard_group}" if strategy.shard_group else ""
        words.append(f"zero{strategy.shard_level}{group}")
    if strategy.shard_level == 3 and not strategy.reshard:
        words.append("no-reshard")
    words.append(f"mb{strategy.micro_batch_size}")
    if recipe.recompute != "none":
        words.append(f"recompute {recipe.recompute}")
    return " ".join(words)


def layout_text(candidate: Candidate, found: Found) -> str:
    """The same of what a search found, with what its recipe has of the axes that recipes differ in."""
    axes, recipe = dict(found.axes), candidate.recipe
    words = [strategy_text(candidate.strategy, recipe)]
    if "," in axes.get("precision", ""):
        words.append(recipe.precision)
    if "offload" in axes and (recipe.offload_activations or recipe.offload_optimizer):
        words.append(f"offload {offload_text(recipe)}")
    return " ".join(words)


def _considered(found: Found, seconds: float | None) -> str:
    took = "" if seconds is None else f" in {format_duration(seconds)}"
    considered = (
        f"{group_digits(found.num_considered)} of {group_digits(found.num_points)} layouts considered{took},"
        f" {group_digits(found.num_evaluated)} of them evaluated, the others ruled out by a rule or a bound"
    )
    return considered if found.best else f"no layout fits: {considered}"


def _ranking(found: Found, top: int) -> tuple[Block, ...]:
    if found.best:
        best = found.best[0].estimate.step_s
        return (_table(found.best[:top], found, best, "the best layouts"),)
    if found.nearest:
        least = found.nearest[0].estimate.step_s
        return (_table(found.nearest[:top], found, least, "nothing fits; the layouts that hold least"),)
    return ()


def _table(candidates: Sequence[Candidate], found: Found, best_s: float, title: str) -> Table:
    rows = []
    for number, each in enumerate(candidates, start=1):
        behind = each.estimate.step_s / best_s - 1
        over = found.capacity_bytes is not None and each.estimate.peak_bytes > found.capacity_bytes
        rows.append(
            Row(
                (
                    str(number),
                    layout_text(each, found),
                    _seconds(each),
                    "" if number == 1 else f"{'+' if behind >= 0 else ''}{format_percent(behind)}",
                    format_bytes(each.estimate.peak_bytes),
                    each.loses_by,
                ),
                mark="bad" if over else "good" if number == 1 else "",
            )
        )
    columns = ("", "<layout", "step", "behind", "memory", "<loses by")
    room = "" if found.capacity_bytes is None else f"a rank may use {format_bytes(found.capacity_bytes)}"
    return Table(columns, tuple(rows), title, room)


def _seconds(each: Candidate) -> str:
    """In seconds even above a minute, so that a column compares."""
    seconds = each.estimate.step_s
    return f"{format_number(seconds, 4)} s" if seconds >= 1 else format_duration(seconds)


def _front(found: Found) -> tuple[Block, ...]:
    """Seconds against bytes; where it is the best layout alone there is nothing to choose."""
    if len(found.pareto_memory) < 2:
        return ()
    shown, note = _few(found.pareto_memory)
    rows = tuple(
        Row(
            (
                _seconds(each),
                format_bytes(each.estimate.peak_bytes),
                layout_text(each, found),
            )
        )
        for each in shown
    )
    return (Table(("step", "memory", "<layout"), rows, "time against memory: nothing is better in both", note),)


def _few(front: Sequence[Candidate]) -> tuple[Sequence[Candidate], str]:
    """At most so many points of a front, both ends among them."""
    if len(front) <= _MOST_ON_A_FRONT:
        return front, ""
    last = len(front) - 1
    picked = [front[round(n * last / (_MOST_ON_A_FRONT - 1))] for n in range(_MOST_ON_A_FRONT)]
    return picked, f"{len(picked)} of {len(front)} points; --json has all"


def _offers(found: Found, currency: str) -> tuple[Block, ...]:
    offers = found.pareto_money
    if not offers:
        return ()
    rows = tuple(
        Row(
            (
                group_digits(each.num_chips),
                format_number(each.days),
                group_digits(round(each.chip_hours)),
                format_money(each.money, currency),
                layout_text(each.candidate, found),
            )
        )
        for each in offers
    )
    title = "days against money: the best layout of each number of chips"
    return (Table(("chips", "days", "chip-hours", "money", "<layout"), rows, title),)


def _losses(losses: Sequence[Loss]) -> tuple[Block, ...]:
    if not losses:
        return ()
    rows = [
        Row(
            (
                group_digits(each.num_points),
                each.kind,
                each.reason,
                "" if each.missing_bytes is None else f"nearest misses {format_bytes(each.missing_bytes)}",
            )
        )
        for each in losses[:_MOST_LOSSES]
    ]
    rest = losses[_MOST_LOSSES:]
    note = f"and {group_digits(sum(each.num_points for each in rest))} for {len(rest)} other reasons" if rest else ""
    return (Table(("layouts", "<lost by", "<reason", "<"), tuple(rows), "why the others lost", note),)
