"""`torchledger plan MODEL`: a layout planned in full; screens, JSON and files. Without a layout it is searched for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torchledger.cli.failure import DoesNotFit
from torchledger.cli.output import show, show_json, terminal_width
from torchledger.cli.plan_asked import Layout, read_layout
from torchledger.cli.plan_files import write_files
from torchledger.cli.plan_options import typed_options
from torchledger.cli.terms import Terms, read_terms
from torchledger.config import ConfigError
from torchledger.planner.constants import Constants, default_constants
from torchledger.planner.outcome import Plan
from torchledger.planner.plan import plan as plan_layout
from torchledger.units import format_bytes, format_duration
from torchledger.view.plan_layout import plan_screen
from torchledger.view.plan_record import plan_to_dict, question_to_dict
from torchledger.view.screen import Block, Lines, Row, Table, assumed

if TYPE_CHECKING:
    from torchledger.planner.launch import HostsUnfilled, Launch
    from torchledger.planner.remedy import Remedy


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
    terms = read_terms(typed, asked.cluster.chip, asked.cluster.num_chips)
    constants = _constants(asked, typed)
    if asked.searches:
        from torchledger.cli.plan_searched import answer_search

        answer_search(asked, constants, terms, options, as_json=as_json)
        return
    plan = full_plan(asked, constants, terms, typed)
    found = () if plan.fits is not False else _remedies(plan, constants)
    launched = launch_of(plan, typed)
    if as_json:
        answer = {**plan_to_dict(plan), "remedies": [_remedy_to_dict(each) for each in found]}
        show_json(
            "plan",
            question_to_dict(plan),
            {**answer, **launch_answer(launched)},
            plan.assumptions,
        )
    else:
        before_last = (*_remedy_table(found), *launch_blocks(launched))
        show(with_blocks(plan, before_last, terms.currency))
    write_files(plan, typed, currency=terms.currency)
    if plan.fits is False:
        raise DoesNotFit(short_by(plan, found))


def full_plan(asked: Layout, constants: Constants, terms: Terms, typed: Mapping[str, Any]) -> Plan:
    """The plan of a question, with its interval where constants were fitted, and with what was filled in told."""
    plan = plan_layout(asked.spec, asked.recipe, asked.strategy, asked.cluster, constants=constants, terms=terms.run)
    plan = replace(plan, assumptions=(*asked.assumptions, *plan.assumptions, *terms.assumptions))
    if (path := typed.get("constants")) is not None:
        from torchledger.cli.plan_interval import calibrated

        plan = calibrated(plan, path)
    return plan


def with_blocks(plan: Plan, blocks: Sequence[Block], currency: str) -> tuple[Block, ...]:
    """The plan's screen with more blocks before the assumptions, which come last."""
    last = len(assumed(plan.assumptions))
    screen = plan_screen(plan, currency=currency, width=terminal_width())
    return (*screen[: len(screen) - last], *blocks, *screen[len(screen) - last :])


def launch_of(plan: Plan, typed: Mapping[str, Any]) -> Launch | None:
    """How the plan is launched, where it is asked.

    Raises:
        ConfigError: the chips do not fill hosts.
    """
    if (target := typed.get("launch")) is None:
        return None
    from torchledger.planner.launch import HostsUnfilled, launch

    try:
        return launch(plan.spec, plan.recipe, plan.strategy, plan.cluster, target)
    except HostsUnfilled as unfilled:
        raise ConfigError("plan", [("--launch", unfilled_text(unfilled, typed))]) from None


def unfilled_text(unfilled: HostsUnfilled, typed: Mapping[str, Any]) -> str:
    """Why the chips do not fill hosts and what would, by the options that say it."""
    what, sizes, island = unfilled.what, unfilled.filled, typed.get("island")
    if island is not None:
        own = f"as many as --island {island} gives an island"
        what += f", {own}" if island == str(unfilled.per_host) else f", and --island {island} is more than any host has"
    others = f"say how many chips a host has with --island {sizes}, or take" if sizes else "take"
    return f"{what}; {others} {unfilled.full} chips"


def launch_blocks(launched: Launch | str | None) -> tuple[Block, ...]:
    """The command that launches the plan, or why there is none."""
    if launched is None:
        return ()
    if isinstance(launched, str):
        return (Lines((f"no launch command: {launched}",), mark="note"),)
    from torchledger.view.plan_launch import launch_screen

    return launch_screen(launched)


def launch_answer(launched: Launch | str | None) -> dict[str, Any]:
    """The same for `--json`."""
    if launched is None:
        return {}
    if isinstance(launched, str):
        return {"no_launch": launched}
    from torchledger.view.plan_launch import launch_to_dict

    return {"launch": launch_to_dict(launched)}


def short_by(plan: Plan, found: Sequence[Remedy]) -> str:
    """What does not fit, by how much, and the fastest changes that would make it fit."""
    assert plan.capacity_bytes is not None
    missing = format_bytes(plan.peak_bytes - plan.capacity_bytes)
    part, num_bytes = max(plan.fullest.memory.parts.items(), key=lambda item: item[1])
    told = (
        f"a rank of stage {plan.fullest.stage.index} needs {format_bytes(plan.peak_bytes)} of"
        f" {format_bytes(plan.capacity_bytes)}, {missing} too much; most of it is {part} ({format_bytes(num_bytes)})"
    )
    if not found:
        return f"{told}; no single change makes it fit: let --search look, or take more or larger chips"
    return f"{told}; it would fit with {'; or '.join(each.what for each in found[:3])}"


def _constants(asked: Layout, typed: Mapping[str, Any]) -> Constants:
    """Those of the chip, or fitted ones of a file."""
    if (path := typed.get("constants")) is None:
        return default_constants(asked.cluster.chip)
    from torchledger.planner.calibration_file import read_fitted

    return read_fitted(path, asked.cluster.chip)[0]


def _remedies(plan: Plan, constants: Constants) -> tuple[Remedy, ...]:
    from torchledger.planner.remedy import remedies  # most layouts fit

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
