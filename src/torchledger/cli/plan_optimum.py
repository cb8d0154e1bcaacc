"""`plan --compute-optimal` without chips: parameters and tokens of a budget of FLOPs, by every law."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from torchledger.cli.output import show, show_json
from torchledger.cli.plan_options import refuse_unused
from torchledger.planner.budget import Optimum, law, laws, optimum
from torchledger.planner.errors import NothingFits
from torchledger.view.optimum import optimum_screen

#: Options that a compute-optimal run without chips reads.
_USED = ("compute_optimal", "flops", "params", "tokens", "law")


def answer_optimum(model: str | None, options: Mapping[str, Any], *, as_json: bool) -> None:
    """Answer for a budget (`--flops`), a model (`--params`) or a corpus (`--tokens`).

    Raises:
        click.UsageError: none of the three is given, or several, or something that says nothing here.
        NothingFits: it is not enough for one parameter on one token.
    """
    if model is not None:
        raise click.UsageError(
            f"{model}: without chips --compute-optimal takes one of --flops, --params and --tokens, and no MODEL;"
            " write its parameters with --params, or give --on CHIPxN"
        )
    known = {name: options[name] for name in ("flops", "params", "tokens") if options[name] is not None}
    if len(known) != 1:
        raise click.UsageError(
            "compute-optimal for what? Give one of --flops, --params, --tokens, or --on CHIPxN with --days or --money"
        )
    refuse_unused(options, _USED, "without chips; give --on CHIPxN, or leave it out")
    ((name, value),) = known.items()
    chosen = optimum(law(options["law"]), **{name: value})
    everybody, silent = [], []
    for each in laws():
        try:
            everybody.append(optimum(each, **{name: value}))
        except NothingFits as error:
            silent.append(f"not in the table: {error}")
    told = "FLOPs are 6 a parameter and token; attention's own FLOPs are left out"
    assumptions = (chosen.law.text, told, *silent)
    if as_json:
        answer = {
            **_answer(chosen),
            "arithmetic": list(chosen.arithmetic),
            "laws": [_answer(each) for each in everybody],
        }
        show_json("plan", {name: value, "compute_optimal": chosen.law.name}, answer, assumptions)
    else:
        show(optimum_screen(chosen, everybody, assumptions))


def _answer(found: Optimum) -> dict[str, Any]:
    return {
        "law": found.law.name,
        "num_parameters": found.params,
        "num_tokens": found.tokens,
        "total_flops": found.flops,
        "tokens_per_parameter": found.tokens_per_parameter,
        "loss": found.loss,
        "source": found.law.source,
    }
