"""`torchledger plan MODEL`: a layout planned in full; screens, JSON and files. Without a layout it is searched for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torchledger import planner
from torchledger.cli.failure import DoesNotFit
from torchledger.cli.output import show, show_json
from torchledger.cli.plan_asked import Layout, read_layout, typed_options
from torchledger.cli.plan_files import write_files
from torchledger.planner import Plan, RunTerms
from torchledger.planner.constants import Constants, default_constants
from torchledger.planner.remedy import Remedy, remedies
from torchledger.units import format_bytes, format_duration
from torchledger.view.plan_layout import plan_screen
from torchledger.view.plan_record import plan_to_dict, question_to_dict
from torchledger.view.screen import Block, Row, Table, assumed


def answer_layout(model: str | None, options: Mapping[str, Any], *, as_json: bool) -> None:
    """Answer `plan MODEL` or `plan --config FILE`.

    Args:
        model: a preset or file; nothing where the file of `--config` has it.
        options: of the command.
        as_json: JSON in place of the screen.

    Raises:
        ConfigError, PlanError: the question cannot be; every mistake is in the message.
        DoesNotFit: the layout does not fit, or none does.
    """
    typed = typed_options(options)
    asked = read_layout(model, typed)
    constants = default_constants(asked.cluster.chip, typed.get("constants"))
    terms, currency = run_terms(typed)
    if typed.get("search") or not asked.is_stated:
        from torchledger.cli.plan_searched import answer_search

        answer_search(asked, constants, terms, typed, currency=currency, as_json=as_json)
        return
    plan = full_plan(asked, constants, terms)
    found = () if plan.fits is not False else _remedies(plan, constants)
    if as_json:
        answer = {**plan_to_dict(plan), "remedies": [_remedy_to_dict(each) for each in found]}
        show_json("plan", question_to_dict(plan), answer, plan.assumptions)
    else:
        show(screen(plan, found, currency=currency))
    write_files(plan, typed, currency=currency)
    if plan.fits is False:
        raise DoesNotFit(short_by(plan, found))


def full_plan(asked: Layout, constants: Constants, terms: RunTerms) -> Plan:
    """The plan of a question, with what was filled in among its assumptions."""
    plan = planner.plan(asked.spec, asked.recipe, asked.strategy, asked.cluster, constants=constants, terms=terms)
    return replace(plan, assumptions=(*asked.assumptions, *plan.assumptions))


def run_terms(options: Mapping[str, Any]) -> tuple[RunTerms, str]:
    """Price, carbon and losses as given, and the currency of the price."""
    amount, currency = options.get("price") or (None, "USD")
    return RunTerms(price_per_chip_hour=amount, carbon_g_per_kwh=options.get("carbon")), currency


def screen(plan: Plan, found: Sequence[Remedy], *, currency: str) -> tuple[Block, ...]:
    """The plan's screen with what would make it fit before the assumptions."""
    last = len(assumed(plan.assumptions))
    blocks = plan_screen(plan, currency=currency)
    return (*blocks[: len(blocks) - last], *_remedy_table(found), *blocks[len(blocks) - last :])


def short_by(plan: Plan, found: Sequence[Remedy]) -> str:
    """What does not fit, by how much, and the fastest change that would make it fit."""
    assert plan.capacity_bytes is not None
    missing = format_bytes(plan.peak_bytes - plan.capacity_bytes)
    part, num_bytes = max(plan.fullest.memory.parts.items(), key=lambda item: item[1])
    told = (
        f"stage {plan.fullest.stage.index} needs {format_bytes(plan.peak_bytes)} of {format_bytes(plan.capacity_bytes)}"
        f" a chip, {missing} too much; the largest part is {part} ({format_bytes(num_bytes)})"
    )
    if not found:
        return f"{told}; no single change makes it fit: search with --search, or take more or larger chips"
    return f"{told}; it would fit with {'; or '.join(each.what for each in found[:3])}"


def _remedies(plan: Plan, constants: Constants) -> tuple[Remedy, ...]:
    return remedies(plan.spec, plan.recipe, plan.strategy, plan.cluster, constants=constants)


def _remedy_table(found: Sequence[Remedy]) -> tuple[Block, ...]:
    if not found:
        return ()
    rows = tuple(
        Row((each.what, format_bytes(each.estimate.peak_bytes), format_duration(each.estimate.step_s)))
        for each in found
    )
    return (Table(("<change", "memory", "step"), rows, "it would fit with one of"),)


def _remedy_to_dict(each: Remedy) -> dict[str, Any]:
    return {
        "change": each.what,
        "num_chips": each.cluster.num_chips,
        "step_s": each.estimate.step_s,
        "peak_bytes": each.estimate.peak_bytes,
    }
