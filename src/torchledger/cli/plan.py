"""`torchledger plan`: the napkin, any one quantity of a training run from the others; with a MODEL, its layout."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import click

from torchledger import planner
from torchledger.cli.complete import chip_names, model_names
from torchledger.cli.documented import Documented
from torchledger.cli.failure import DoesNotFit
from torchledger.cli.output import json_option, show, show_json
from torchledger.cli.plan_model import params_of
from torchledger.cli.plan_options import given_layout_options, layout_options
from torchledger.cli.quantity import COUNT, DAYS, FLOPS_PER_S, MONEY, SHARE
from torchledger.cli.question import OTHER_NAMES, Question, read_question
from torchledger.planner import Holding, Napkin, PlanError, Underdetermined
from torchledger.units import format_flops_per_s, format_number, format_percent
from torchledger.view.plan import holding_screen, napkin_screen

_SOLVABLE = (*planner.QUANTITIES, *OTHER_NAMES)
#: Options that no layout has: with one of them a MODEL only says how many parameters there are.
_NAPKIN_ONLY = ("params", "days", "mfu", "money", "solve")


@click.command(
    cls=Documented,
    examples=(
        "torchledger plan --params 70B --tokens 15T --on h100x1024 --mfu 0.5",
        "torchledger plan --params 8B --tokens 15T --days 30 --on h100 --solve chips --price '$2.80'",
        "torchledger plan --solve params --on h100x8 --precision fp32",
        "torchledger plan --params '?' --tokens 1T --days 14 --on h100x64",
        "torchledger plan llama-3-70b --tokens 15T --on h100x1024 --mfu 0.4",
    ),
)
@click.argument("model", required=False, shell_complete=model_names)
@click.option("--params", type=COUNT, help="Parameters N: 70B. `?` asks for it, here and below.")
@click.option("--tokens", type=COUNT, help="Training tokens D: 15T.")
@click.option("--days", type=DAYS, help="Wall-clock time: 30, or '3d 4h'.")
@click.option("--on", "cluster", metavar="CHIPxN", help="The chips: h100x1024, 8xA100.", shell_complete=chip_names)
@click.option("--chips", "num_chips", type=COUNT, help="Number of chips, where --on does not say it.")
@click.option("--mfu", type=SHARE, help="Model FLOPs utilisation: 0.5 or 50%.")
@click.option("--price", type=MONEY, help="Price of one chip for one hour: '$2.80'.")
@click.option("--money", type=MONEY, help="The whole budget: '$10M'. Needs a price.")
@click.option(
    "--solve",
    type=click.Choice(_SOLVABLE),
    metavar="QUANTITY",
    help="What is asked for, the same as `?` for it: params, tokens, days, chips or mfu.",
)
@click.option(
    "--precision",
    type=click.Choice(planner.PRECISIONS),
    default="bf16",
    show_default=True,
    help="Of the matmuls (before the dash) and of the training state.",
)
@click.option(
    "--optimizer",
    type=click.Choice(planner.OPTIMIZERS),
    default="adamw",
    show_default=True,
    help="Whose state is held.",
)
@click.option("--peak", type=FLOPS_PER_S, help="Another dense peak of one chip than the catalog's: '989.5 TFLOP/s'.")
@layout_options
@json_option
def command(model: str | None, as_json: bool, **options: Any) -> None:
    """Days, chips, MFU, parameters, tokens or money of a training run: any one of them from the others.

    days = 6 · params · tokens / (chips · peak · MFU), with the dense peak of the chip. Without tokens and days,
    `--solve params` answers with the largest model whose training state the chips can hold.

    With a MODEL (a preset, a TOML file, a config.json) or --config the layout is planned: whether it fits, the seconds
    of a step by cause, memory by part, MFU, days, money. Without a layout (--tp, --pp, --zero ...) the best one is
    searched for.
    """
    if model is not None and any(options[name] is not None for name in _NAPKIN_ONLY):
        options["params"] = params_of(model, options)
    elif model is not None or options["config_file"] is not None:
        from torchledger.cli.plan_layout import answer_layout

        answer_layout(model, options, as_json=as_json)
        return
    if given := given_layout_options(options):
        raise click.UsageError(f"{', '.join(given)}: a layout needs a model: torchledger plan MODEL --on h100x8 ...")
    question = read_question(options)
    if question.asks_memory:
        _answer_memory(question, as_json)
    else:
        _answer_time(question, as_json)


def _answer_time(question: Question, as_json: bool) -> None:
    peak, peak_note = _peak(question)
    napkin = _solve(question, peak, (peak_note,))
    notes = _with_other_peaks(question, napkin)
    holdings = [] if napkin.num_chips is None else _holdings(question, napkin.num_chips, (question.precision,))
    if as_json:
        show_json("plan", _as_asked(question), _napkin_answer(napkin, holdings), (*napkin.assumptions, *notes))
    else:
        show(
            napkin_screen(
                replace(napkin, assumptions=(*napkin.assumptions, *notes)), question.cluster.chip.name, holdings
            )
        )
    if not napkin.is_possible:
        raise DoesNotFit(f"it would need {format_percent(napkin.mfu)} of the peak: more chips, more days or less work")
    nominal = [holding for holding in holdings if holding.label == "nominal"]
    if any(holding.share_needed(napkin.params) > 1 for holding in nominal):
        raise DoesNotFit("the training state alone is larger than the memory of all chips together")


def _solve(question: Question, peak_flops_per_s: float, assumptions: tuple[str, ...]) -> Napkin:
    """The napkin; where nothing but the MFU is missing, with that of published runs and a line that says so."""
    known: dict[str, Any] = {
        **question.given,
        "peak_flops_per_s": peak_flops_per_s,
        "price_per_chip_hour": question.price_per_chip_hour,
        "money": question.money,
        "currency": question.currency,
    }
    try:
        return planner.solve(**known, assumptions=assumptions)
    except Underdetermined:
        if "mfu" in question.given or question.solved == "mfu":
            raise
    assumed = planner.assumed_mfu()
    return planner.solve(**known, mfu=assumed.mfu, assumptions=(*assumptions, f"{assumed.text}; --mfu says otherwise"))


def _peak(question: Question) -> tuple[float, str]:
    chip, number_format = question.cluster.chip, question.number_format
    if question.peak_flops_per_s is not None:
        return question.peak_flops_per_s, f"peak: {format_flops_per_s(question.peak_flops_per_s)}, as given"
    peak = chip.peak(number_format)
    return peak, (
        f"peak: {format_flops_per_s(peak)}, the dense {number_format} peak of {chip.name} ({chip.source}, {chip.date})"
    )


def _with_other_peaks(question: Question, napkin: Napkin) -> tuple[str, ...]:
    """What other figures in print for the same peak would answer, so that nobody has to wonder."""
    if question.peak_flops_per_s is not None or not napkin.solved:
        return ()
    name = napkin.solved[0]
    notes = []
    for quoted in question.cluster.chip.quoted:
        if quoted.what == f"dense.{question.number_format}":
            other = getattr(_solve(question, quoted.value, ()), name)
            mine, theirs = (format_number(value, 4) for value in (getattr(napkin, name), other))
            notes.append(
                f"another figure in print for that peak is {format_flops_per_s(quoted.value)} ({quoted.by}):"
                f" {name} {'is' if mine == theirs else 'would be'} {theirs} with {'either' if mine == theirs else 'it'}"
            )
    return tuple(notes)


def _answer_memory(question: Question, as_json: bool) -> None:
    num_chips = int(question.given.get("num_chips", question.cluster.num_chips))
    holdings = _holdings(question, num_chips, planner.PRECISIONS)
    if not holdings:
        raise PlanError(f"the memory of {question.cluster.chip.name} is not known")
    chosen = next(holding for holding in holdings if holding.state.name == question.precision)
    assumptions = (
        "only the training state is held: activations, buffers and the framework's own memory are not counted",
        f"the state is spread evenly over all {num_chips} chips (ZeRO stage 3 or FSDP)",
        f"optimizer: {question.optimizer}",
        "no tokens and days are given, so memory alone sets the limit",
    )
    if as_json:
        answer = {
            "num_parameters": chosen.params,
            "bytes_per_parameter": chosen.state.total,
            "arithmetic": [chosen.state.text, chosen.arithmetic],
            "holdings": [_holding_answer(holding) for holding in holdings],
        }
        show_json("plan", _as_asked(question), answer, assumptions)
    else:
        show(holding_screen(holdings, question.cluster.chip.name, assumptions, chosen))


def _holdings(question: Question, num_chips: int, precisions: tuple[str, ...]) -> list[Holding]:
    """How the state may be held, by precision, on the bytes that the chip is sold with and that its driver reports."""
    chip = question.cluster.chip
    known = (("nominal", chip.memory_bytes_nominal), ("reported by the driver", chip.memory_bytes_reported))
    return [
        Holding(label, num_chips, num_bytes, planner.state_bytes(precision, question.optimizer))
        for precision in precisions
        for label, num_bytes in known
        if num_bytes is not None
    ]


def _as_asked(question: Question) -> dict[str, Any]:
    return {
        **question.given,
        "solved": question.solved,
        "chip": question.cluster.chip.key,
        "precision": question.precision,
        "optimizer": question.optimizer,
        "price_per_chip_hour": question.price_per_chip_hour,
        "money": question.money,
        "currency": question.currency,
        "peak_flops_per_s": question.peak_flops_per_s,
    }


def _napkin_answer(napkin: Napkin, holdings: list[Holding]) -> dict[str, Any]:
    amounts = asdict(napkin)
    names = {"params": "num_parameters", "tokens": "num_tokens"}
    answer = {names.get(name, name): value for name, value in amounts.items() if name != "assumptions"}
    state = [{**_holding_answer(h), "share_needed": h.share_needed(napkin.params)} for h in holdings]
    return {**answer, "is_possible": napkin.is_possible, "training_state": state}


def _holding_answer(holding: Holding) -> dict[str, Any]:
    return {
        "memory": holding.label,
        "bytes_per_chip": holding.bytes_per_chip,
        "num_chips": holding.num_chips,
        "precision": holding.state.name,
        "bytes_per_parameter": holding.state.total,
        "largest_num_parameters": holding.params,
    }
