"""`plan --solve params` or `--solve chips` by memory: the largest model that chips hold, the fewest for a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import click

from torchledger import planner, spec
from torchledger.cli.failure import DoesNotFit
from torchledger.cli.output import show, show_json
from torchledger.cli.question import Question, as_asked
from torchledger.planner import Holding, PlanError
from torchledger.planner.holding import Activations, activations, family
from torchledger.planner.state import optimizer_note
from torchledger.spec import Recipe
from torchledger.units import group_digits, parse_count
from torchledger.view.largest import chips_screen, holding_screen

_LARGEST_LEVEL = 3
_MOST_TOKENS = 10**15


def answer_memory(question: Question, options: Mapping[str, Any], *, as_json: bool) -> None:
    """Answer by memory alone.

    Raises:
        PlanError: the chip's memory is unknown.
        DoesNotFit: no number of chips holds the model.
    """
    num_chips = int(question.given.get("num_chips", question.cluster.num_chips))
    level = _level(options["zero"])
    held = _activations(question, options)
    precisions = planner.PRECISIONS
    holdings = [replace(h, shard_level=level, activations=held) for h in holdings_of(question, num_chips, precisions)]
    if not holdings:
        raise PlanError(f"the memory of {question.cluster.chip.name} is not known")
    chosen = next(holding for holding in holdings if holding.state.name == question.precision)
    assumptions = (
        *_counted_out(chosen),
        chosen.spread_text,
        f"optimizer: {question.optimizer}, {optimizer_note(question.optimizer)}",
        "no tokens and days are given, so memory alone sets the limit",
    )
    if question.solved == "params":
        _answer_params(question, holdings, chosen, assumptions, as_json=as_json)
    else:
        _answer_chips(question, holdings, chosen, assumptions, options, as_json=as_json)


def _counted_out(chosen: Holding) -> tuple[str, ...]:
    if chosen.activations is None:
        told = "only the training state is held: activations, buffers and the framework's own memory are not counted"
        return (f"{told} (--activations kept counts the first)",)
    return (
        chosen.activations.text,
        f"a chip holds {group_digits(chosen.activations.tokens)} tokens at once; --tokens-per-chip says otherwise",
        "buffers, gathered weights and the framework's own memory are not counted",
    )


def _answer_params(
    question: Question, holdings: list[Holding], chosen: Holding, assumptions: tuple[str, ...], *, as_json: bool
) -> None:
    if as_json:
        answer = {
            "num_parameters": chosen.params,
            "bytes_per_parameter": chosen.state.total,
            "arithmetic": [chosen.state.text, chosen.arithmetic],
            "holdings": [holding_answer(holding) for holding in holdings],
        }
        show_json("plan", as_asked(question), answer, assumptions)
    else:
        show(holding_screen(holdings, question.cluster.chip.name, assumptions, chosen))
    if chosen.params < 1:
        raise DoesNotFit(
            "the activations alone are larger than a chip: fewer --tokens-per-chip, or --activations recomputed"
        )


def _answer_chips(
    question: Question,
    holdings: list[Holding],
    chosen: Holding,
    assumptions: tuple[str, ...],
    options: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    params = question.given["params"]
    found = {(h.state.name, h.label): h.chips_needed(params) for h in holdings}
    number = found[chosen.state.name, chosen.label]
    if as_json:
        answer = {
            "num_chips": number,
            "num_parameters": params,
            "bytes_per_parameter": chosen.state.total,
            "arithmetic": [chosen.state.text],
            "holdings": [{"precision": p, "memory": label, "num_chips": n} for (p, label), n in found.items()],
        }
        show_json("plan", as_asked(question), answer, assumptions)
    else:
        show(chips_screen(holdings, params, question.cluster.chip.name, assumptions, chosen))
    if number is None:
        raise DoesNotFit(
            f"no number of chips holds it: what is not spread over them is larger than one ({chosen.capacity_text});"
            f" {' and '.join(_smaller(chosen, options))}"
        )


def _smaller(chosen: Holding, options: Mapping[str, Any]) -> Iterator[str]:
    """What would leave less on each chip that is not spread."""
    if chosen.shard_level < _LARGEST_LEVEL:
        yield f"--zero {_LARGEST_LEVEL} spreads the whole state"
    if chosen.activations is not None:
        if options["activations"] == "kept":
            yield "--activations recomputed keeps less"
        yield f"fewer --tokens-per-chip than {group_digits(chosen.activations.tokens)} keep less"


def _level(text: str | None) -> int:
    if text is None:
        return _LARGEST_LEVEL
    level = parse_count(text)
    if level not in range(_LARGEST_LEVEL + 1):
        raise click.UsageError(f"--zero is {text}; it is 0 (nothing is spread), 1, 2 or 3 (all of the state is)")
    return level


def _activations(question: Question, options: Mapping[str, Any]) -> Activations | None:
    """Activations of the model's family, or of a Transformer of the usual shape."""
    kind, tokens = options["activations"], options["tokens_per_chip"]
    if not 1 <= tokens <= _MOST_TOKENS:
        raise click.UsageError(f"--tokens-per-chip must be at least 1 and at most {_MOST_TOKENS:.0e}")
    if kind == "none" or question.model is None:
        return activations(kind, tokens)
    from torchledger.formula import memory, num_parameters

    model = question.model
    length = min(spec.default_sequence_length(model), tokens)
    held = memory(
        model,
        Recipe(
            sequence_length=length,
            precision="fp32" if question.precision in {"fp32", "tf32"} else "bf16",
            recompute="full" if kind == "recomputed" else "none",
        ),
    )
    again = sum(each.total_bytes for each in held.recomputed) / model.num_layers  # one layer's at a time
    per_token = (held.activation_bytes + again) / length
    return family(model.name, num_parameters(model), per_token, tokens)


def holdings_of(question: Question, num_chips: int, precisions: tuple[str, ...]) -> list[Holding]:
    """How the state may be held, by precision, on the bytes that the chip is sold with and that its driver reports."""
    chip = question.cluster.chip
    known = (("nominal", chip.memory_bytes_nominal), ("reported by the driver", chip.memory_bytes_reported))
    return [
        Holding(label, num_chips, num_bytes, planner.state_bytes(precision, question.optimizer, question.gradients))
        for precision in precisions
        for label, num_bytes in known
        if num_bytes is not None
    ]


def holding_answer(holding: Holding) -> dict[str, Any]:
    """A holding for a JSON answer."""
    return {
        "memory": holding.label,
        "bytes_per_chip": holding.bytes_per_chip,
        "num_chips": holding.num_chips,
        "precision": holding.state.name,
        "zero": holding.shard_level,
        "bytes_per_parameter": holding.state.total,
        "largest_num_parameters": holding.params,
    }
