"""`torchledger plan`: what a training run takes; by napkin, by layout, or the audit of what somebody claims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from torchledger.cli.complete import model_names
from torchledger.cli.documented import Documented
from torchledger.cli.lazy import importing
from torchledger.cli.napkin_options import AUDIT_NAMES, audit_options, napkin_options
from torchledger.cli.output import json_option
from torchledger.cli.plan_options import given_layout_options, layout_options
from torchledger.cli.question import Kind, kind_of_question, what_makes_it
from torchledger.cli.terms import run_options

#: Options of a layout that other kinds of questions read, too.
_SHARED: Mapping[Kind, frozenset[str]] = {
    "audit": frozenset({"--sequence", "--batch"}),
    "napkin": frozenset({"--sequence", "--zero"}),
    "optimum": frozenset(),
}


@click.command(
    cls=Documented,
    examples=(
        "torchledger plan --params 70B --tokens 15T --on h100x1024 --mfu 0.5",
        "torchledger plan --params 8B --tokens 15T --days 30 --on h100 --solve chips --price '$2.80'",
        "torchledger plan --solve params --on h100x8 --precision fp32",
        "torchledger plan --solve params --on h100x8 --precision bf16-master --gradients fp32 --zero 1",
        "torchledger plan --params '?' --tokens 1T --days 14 --on h100x64",
        "torchledger plan --compute-optimal --days 30 --on h100x512    the model that a deadline allows",
        "torchledger plan --compute-optimal --flops 5.76e23   by every law",
        "torchledger plan llama-3-8b --tokens 15T --on h100x1024 --mfu 0.5   with its own FLOPs a token",
        "torchledger plan llama-3-8b --on h100x8 --zero 3 --recompute full --tokens 15B   a layout",
        "torchledger plan llama-3-70b --on h100x64 --tp 8 --pp 2 --zero 1 --sequence-parallel --timeline step.json",
        "torchledger plan gpt2 --on h100x8 --batch 64   the best layout",
        "torchledger plan llama-3-70b --on h100x16 --search-precision bf16,fp8 --search-offload none,optimizer",
        "torchledger plan --config plan.toml   model, recipe, strategy and cluster of one file",
        "torchledger plan palm-540b --audit-mfu --on 'tpu v4 x6144' --tokens-per-s 238.3k --printed-mfu 46.2%",
    ),
)
@click.argument("model", required=False, shell_complete=model_names)
@napkin_options
@run_options
@layout_options
@audit_options
@json_option
def command(model: str | None, as_json: bool, **options: Any) -> None:
    """Days, chips, MFU, parameters, tokens or money of a training run: any one of them from the others.

    days = 6 · params · tokens / (chips · peak · MFU), with the dense peak of the chip. Without tokens and days,
    `--solve params` answers with the largest model whose training state the chips can hold, `--solve chips` with the
    fewest chips that hold it. With MODEL a parallel layout is planned, or searched for.
    """
    kind = kind_of_question(model, options)
    if kind != "audit":
        _refuse([f"--{name.replace('_', '-')}" for name in AUDIT_NAMES if options[name] is not None], "--audit-mfu")
    if kind == "layout":
        with importing():
            from torchledger.cli.plan_layout import answer_layout

        answer_layout(model, options, as_json=as_json)
        return
    needs = "a MODEL and no napkin"
    if model is not None:
        needs = f"a layout, and {what_makes_it(kind, options)} asks for none: leave one of the two out"
    _refuse([flag for flag in given_layout_options(options) if flag not in _SHARED[kind]], needs)
    if kind == "audit":
        from torchledger.cli.plan_audit import answer_audit

        answer_audit(model, options, as_json=as_json)
    elif kind == "optimum":
        from torchledger.cli.plan_optimum import answer_optimum

        answer_optimum(model, options, as_json=as_json)
    else:
        from torchledger.cli.plan_napkin import answer_napkin

        answer_napkin(model, options, as_json=as_json)


def _refuse(given: list[str], needs: str) -> None:
    """Options that say nothing here are refused rather than passed over.

    Raises:
        click.UsageError: there are some.
    """
    if given:
        raise click.UsageError(f"{', '.join(given)} go{'es' if len(given) == 1 else ''} with {needs}")
