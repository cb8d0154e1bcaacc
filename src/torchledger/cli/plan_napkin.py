"""`plan` by napkin: days = FLOPs / (chips · peak · MFU), or the largest model and the fewest chips by memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import click

from torchledger import planner, spec
from torchledger.cli.failure import DoesNotFit
from torchledger.cli.output import show, show_json
from torchledger.cli.plan_memory import answer_memory, holding_answer, holdings_of
from torchledger.cli.plan_options import refuse_unused
from torchledger.cli.question import Question, as_asked, read_question, read_sizes
from torchledger.planner import Napkin, PlanError, Underdetermined
from torchledger.planner.run import Run, run_of
from torchledger.spec import ModelSpec, Recipe
from torchledger.units import format_flops, format_flops_per_s, format_number, format_percent, group_digits
from torchledger.view.plan import napkin_screen


def answer_napkin(model: str | None, options: Mapping[str, Any], *, as_json: bool) -> None:
    """Answer by napkin.

    Args:
        model: a model in place of `--params`.
        options: of the command.
        as_json: JSON in place of the screen.

    Raises:
        PlanError, click.UsageError: the question cannot be answered.
        DoesNotFit: the answer is more than the chips can do.
    """
    _refuse_nothing(model, options)
    described, params = (None, None) if model is None else _described(model)
    question = read_question(options, described, params)
    _refuse_unread(question, options)
    if question.asks_memory:
        answer_memory(question, options, as_json=as_json)
        return
    if described is not None and question.solved == "params":
        raise click.UsageError(
            "MODEL says how many parameters; leave it out to ask for them, or leave out tokens and days to ask memory"
        )
    counted = None if described is None else _counted(described, read_sizes(described, options)[0])
    _answer_time(question, counted, as_json=as_json)


def _described(name: str) -> tuple[ModelSpec, int]:
    """A model and its parameters; the formulas are loaded where there is one."""
    from torchledger.formula import num_parameters

    found = spec.load(name)
    return found, num_parameters(found)


def _refuse_nothing(model: str | None, options: Mapping[str, Any]) -> None:
    """A question without a quantity is answered with what can be asked.

    Raises:
        click.UsageError: nothing is given but chips.
    """
    names = ("params", "tokens", "days", "money", "solve", "mfu", "flops")
    if model is None and not options["compute_optimal"] and all(options[name] is None for name in names):
        raise click.UsageError(
            "what is asked? Give all but one of --params, --tokens, --days, --on CHIPxN and --mfu (a usual MFU is taken"
            " where none is given), for example `torchledger plan --params 70B --tokens 15T --on h100x1024`; or"
            " `--solve params --on h100x8` for the largest model that fits; or a MODEL for a layout"
        )
    if options["flops"] is not None and not (options["compute_optimal"] and not options["cluster"]):
        raise click.UsageError(
            "--flops is a budget for --compute-optimal without --on; chips and days give FLOPs by themselves"
        )


def _refuse_unread(question: Question, options: Mapping[str, Any]) -> None:
    """What is said of memory where time is asked for, of time where memory is, of a model where there is none.

    Raises:
        click.UsageError: there is some.
    """
    of_memory, of_time = {"zero", "activations", "tokens_per_chip"}, {"mfu", "peak"}
    unread = of_time if question.asks_memory else of_memory
    why = (
        "where memory alone answers; give --tokens and --days, or leave it out"
        if question.asks_memory
        else "of time; it is of memory, which answers --solve params or --solve chips without tokens and days"
    )
    refuse_unused(options, options.keys() - unread, why)
    if question.model is None:
        refuse_unused(options, options.keys() - {"sequence"}, "without a MODEL, whose attention it is")
    if question.law is None:
        refuse_unused(options, options.keys() - {"law"}, "without --compute-optimal")


def _counted(model: ModelSpec, length: int) -> tuple[float, str, float]:
    """FLOPs a token of the model, how they were counted, and how many times 6·N they are."""
    from torchledger.formula import flops_per_token
    from torchledger.formula.parameters import num_active_parameters

    flops = flops_per_token(model, Recipe(sequence_length=length))
    told = (
        f"FLOPs: {format_flops(flops)} a token, counted for {model.name} on sequences of {group_digits(length)} tokens"
        " (contractions, attention full; `count MODEL --by convention` has others); --sequence says otherwise"
    )
    return flops, told, flops / (6 * num_active_parameters(model))


def _answer_time(question: Question, counted: tuple[float, str, float] | None, *, as_json: bool) -> None:
    peak, peak_note = _peak(question)
    notes = (peak_note,) if counted is None else (counted[1], peak_note)
    napkin = _solve(question, peak, counted, notes)
    run = run_of(napkin, question.cluster.chip, question.state, question.terms.run)
    more = (*_with_other_peaks(question, napkin, counted), *question.terms.assumptions, *run.assumptions)
    holdings = [] if napkin.num_chips is None else holdings_of(question, napkin.num_chips, (question.precision,))
    if as_json:
        state = [{**holding_answer(h), "share_needed": h.share_needed(napkin.params)} for h in holdings]
        show_json("plan", as_asked(question), _napkin_answer(napkin, run, state), (*napkin.assumptions, *more))
    else:
        told = replace(napkin, assumptions=(*napkin.assumptions, *more))
        show(napkin_screen(told, question.cluster.chip.name, holdings, run))
    if not napkin.is_possible:
        raise DoesNotFit(f"it would need {format_percent(napkin.mfu)} of the peak: more chips, more days or less work")
    nominal = [holding for holding in holdings if holding.label == "nominal"]
    if any(holding.share_needed(napkin.params) > 1 for holding in nominal):
        raise DoesNotFit("the training state alone is larger than the memory of all chips together")


def _solve(
    question: Question, peak_flops_per_s: float, counted: tuple[float, str, float] | None, assumptions: tuple[str, ...]
) -> Napkin:
    """The napkin; where nothing but the MFU is missing, with that of published runs and a line that says so."""
    known: dict[str, Any] = {
        **question.given,
        "peak_flops_per_s": peak_flops_per_s,
        "price_per_chip_hour": question.terms.run.price_per_chip_hour,
        "money": question.money,
        "currency": question.currency,
        "law": question.law,
        "flops_per_token": None if counted is None else counted[0],
    }
    try:
        return planner.solve(**known, assumptions=assumptions)
    except Underdetermined:
        if "mfu" in question.given or question.solved == "mfu":
            raise
    assumed = planner.assumed_mfu(question.cluster.chip, question.number_format)
    mfu, text = assumed.mfu, assumed.text
    if counted is not None:
        mfu = assumed.mfu * counted[2]
        text += (
            f"; that speed is {format_percent(mfu)} by this model's own FLOPs, {format_number(counted[2])} times 6·N"
        )
    if mfu >= 1:
        raise PlanError(f"{text}: more than the peak, so no usual MFU can be assumed; give --mfu")
    return planner.solve(**known, mfu=mfu, assumptions=(*assumptions, f"{text}; --mfu says otherwise"))


def _peak(question: Question) -> tuple[float, str]:
    chip, number_format = question.cluster.chip, question.number_format
    if question.peak_flops_per_s is not None:
        return question.peak_flops_per_s, f"peak: {format_flops_per_s(question.peak_flops_per_s)}, as given"
    peak = chip.peak(number_format)
    return peak, (
        f"peak: {format_flops_per_s(peak)}, the dense {number_format} peak of {chip.name} ({chip.source}, {chip.date})"
    )


def _with_other_peaks(question: Question, napkin: Napkin, counted: tuple[float, str, float] | None) -> tuple[str, ...]:
    """What other figures in print for the same peak would answer, so that nobody has to wonder."""
    if question.peak_flops_per_s is not None or not napkin.solved:
        return ()
    name = "days" if "days" in napkin.solved else napkin.solved[0]
    notes = []
    for quoted in question.cluster.chip.quoted:
        if quoted.what == f"dense.{question.number_format}":
            other = getattr(_solve(question, quoted.value, counted, ()), name)
            mine, theirs = (format_number(value, 4) for value in (getattr(napkin, name), other))
            notes.append(
                f"another figure in print for that peak is {format_flops_per_s(quoted.value)} ({quoted.by}):"
                f" {name} {'is' if mine == theirs else 'would be'} {theirs} with {'either' if mine == theirs else 'it'}"
            )
    return tuple(notes)


def _napkin_answer(napkin: Napkin, run: Run, state: list[dict[str, Any]]) -> dict[str, Any]:
    names = {"params": "num_parameters", "tokens": "num_tokens"}
    answer = {names.get(name, name): value for name, value in asdict(napkin).items() if name != "assumptions"}
    lost = run.losses
    return {
        **answer,
        "is_possible": napkin.is_possible,
        "training_state": state,
        "energy_j": run.energy_j,
        "carbon_kg": run.carbon_kg,
        "losses": None if lost is None else dict(lost.shares),
        "wall_days": run.wall_days,
    }
