"""`count --trace`: the real module's step run on no memory. The only part of `count` that loads torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from torchledger.cli import architecture, own
from torchledger.cli.asked import Asked
from torchledger.cli.looked import look
from torchledger.cli.output import note
from torchledger.cli.prediction import disagreement
from torchledger.cli.step import answer_step
from torchledger.cli.traced import answer_traced, guarded, require_complete
from torchledger.formula import count
from torchledger.ledger import Convention
from torchledger.machine import get as get_chip
from torchledger.tracer.building import Built, built
from torchledger.tracer.targets import target as target_of
from torchledger.tracer.whatif import Change
from torchledger.units import format_bytes
from torchledger.view.memory import live_table
from torchledger.view.screen import Lines
from torchledger.view.trace import coverage_lines, purpose_table, roofline_table


def answer_by_looking(asked: Asked, convention: Convention, options: Mapping[str, Any]) -> None:
    """Show the traced ledger, the peak with what lives there, and whether the formulas agree."""
    if options["what_if"] or options["max_batch"] is not None or options["max_sequence"] is not None:
        note(f"running {asked.model.name} on no memory ...")
        answer_traced(asked.model.name, _as_built(asked), options)
        return
    note(f"running {asked.model.name} on no memory ...")
    trace = look(asked.model, asked.recipe, target=options["target"] or "cpu", chip=options["chip"])
    ledger = trace.ledger.folded().under(convention)
    peak = trace.peak()
    inside = f", {format_bytes(peak.internal_bytes)} of them inside a kernel" if peak.internal_bytes else ""
    apart = disagreement(count(asked.model, asked.recipe), trace)
    more = (
        purpose_table(ledger),
        *((roofline_table(ledger, get_chip(options["chip"])),) if options["chip"] is not None else ()),
        live_table(peak, limit=12),
        Lines((f"peak of the tensors: {format_bytes(peak.peak_bytes)}{inside}",), mark="note"),
        coverage_lines(trace.coverage),
        Lines(apart or ("they agree on every contraction, to the last FLOP",), "formula and trace"),
    )
    answer_step(asked, ledger, options, how="by looking at the real step", memory=peak.by_part(), more=more)
    require_complete(ledger, strict=options["strict"])


def answer_own(name: str, options: Mapping[str, Any]) -> None:
    """Trace what a function of the user's file makes.

    Raises:
        click.UsageError: no such file or function, or an option that is a preset's.
        Failed: the user's code raises.
    """
    _refuse(name, options)
    function = own.load_function(name)
    note(f"running {name} on no memory ...")
    target = target_of(options["target"] or "cpu", options["chip"])
    answer_traced(name, guarded(name, lambda: built(function, target)), options, _change(options))


def answer_architecture(name: str, options: Mapping[str, Any]) -> None:
    """Trace the model that transformers builds from a configuration, without weights.

    Raises:
        ModuleNotFoundError: transformers is not there.
        click.UsageError: it does not know the architecture, or an option that is a preset's.
    """
    _refuse(name, options)
    rows = options["batch_size"] or 1
    function = architecture.builder(name, batch_size=rows, sequence_length=options["sequence_length"])
    note(f"running {name} on no memory ...")
    made = guarded(name, lambda: built(function))
    answer_traced(name, made, options, _change({**options, "batch_size": None, "sequence_length": None}))


def _as_built(asked: Asked) -> Built:
    """A preset as a model with its batch, for what changes the step."""
    import torch

    from torchledger.trainer.narrowing import narrow
    from torchledger.trainer.optimizer import build_optimizer
    from torchledger.trainer.step import build_model
    from torchledger.trainer.unbuilt import require_built_recipe

    recipe = asked.recipe
    require_built_recipe(recipe)

    def make() -> dict[str, Any]:
        model = build_model(asked.model, recipe)
        masters = narrow(model, recipe.precision)
        ids = torch.zeros(recipe.micro_batch_size, recipe.sequence_length, dtype=torch.int64)
        return {
            "model": model,
            "batch": (ids, ids.clone()),
            "optimizer": build_optimizer(model, recipe.optimizer, recipe.precision, masters=masters),
            "precision": recipe.precision if recipe.precision in {"bf16", "fp16"} else "fp32",
            "gradient_clip": recipe.optimizer.gradient_clip,
            "accumulation_steps": recipe.accumulation_steps,
        }

    return built(make)


def _change(options: Mapping[str, Any]) -> Change:
    return Change(
        checkpoint="full" if options["recompute"] == "full" else "none",
        micro_batch=options["batch_size"],
        sequence_length=options["sequence_length"],
    )


def _refuse(name: str, options: Mapping[str, Any]) -> None:
    """Options that only the formulas and presets know."""
    if options["symbolic"] or options["expand"]:
        raise click.UsageError(
            f"--{'symbolic' if options['symbolic'] else 'expand'} is by formula, and {name} is traced"
        )
    for option, value in (("--set", options["sets"]), ("--attention", options["attention"])):
        if value:
            raise click.UsageError(f"{option} is for presets and model files; {name} says itself what it is")
    if options["by"] in {"parameter", "activation", "convention"}:
        raise click.UsageError(
            f"--by {options['by']} is by formula; a trace is cut by module, op, phase, kind or source"
        )
