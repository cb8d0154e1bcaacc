"""`torchledger count`: what a training step of a model costs, by arithmetic or by looking."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from torchledger.cli.architecture import is_architecture
from torchledger.cli.asked import Asked, ask
from torchledger.cli.complete import model_names
from torchledger.cli.documented import Documented
from torchledger.cli.failure import Failed
from torchledger.cli.named_path import NamedPath
from torchledger.cli.output import json_option, show, show_json
from torchledger.cli.own import is_own
from torchledger.cli.quantity import BYTES, COUNT
from torchledger.cli.step import answer_step, question_of
from torchledger.formula import count, memory, num_parameters, parameters, per_token
from torchledger.ledger import Convention, Ledger
from torchledger.view.count import activation_table, convention_table
from torchledger.view.model import parameter_table
from torchledger.view.screen import Table

_CUTS = ("module", "op", "phase", "kind", "number_format", "source")
_LISTS = ("parameter", "activation", "convention")


@click.command(
    cls=Documented,
    examples=(
        "torchledger count llama-3-8b",
        "torchledger count gpt2 --by parameter",
        "torchledger count gpt2 --batch 8 --sequence 512 --precision bf16 --by op",
        "torchledger count gpt2 --set model.num_layers=6 --set recipe.optimizer.kind=sgd",
        "torchledger count gpt2 -o step.json        the lines, for `compare`",
        "torchledger count gpt2 --trace --batch 2   runs the real module on no memory (needs torch)",
        "torchledger count gpt2 --chip h100         whether arithmetic or memory sets the time of each line",
        "torchledger count gpt2 --trace --what-if checkpoint=full --what-if precision=bf16",
        "torchledger count gpt2 --set model.num_layers=2 --trace --target cuda --max-batch 80GB",
        "torchledger count my.py:build --trace      your own model or step, made by a function of your file",
        "torchledger count config.json --trace      as transformers builds it, without weights",
        "torchledger count gpt2 --symbolic          the polynomial in B, T, L, D ... (needs sympy)",
        "torchledger count --snapshot gpu.pickle    who held what at the peak of a recorded GPU",
        "torchledger count --snapshot gpu.pickle --allocator expandable_segments:True",
    ),
)
@click.argument("model", required=False, shell_complete=model_names)
@click.option("--by", type=click.Choice((*_LISTS, *_CUTS)), help="One table, cut so, instead of the overview.")
@click.option("--depth", type=click.IntRange(1), default=3, show_default=True, help="Levels of the module tree.")
@click.option("--expand", is_flag=True, help="Every layer's parameters by name, not one line for equal layers.")
@click.option("--batch", "batch_size", type=COUNT, help="Sequences in a step (default 1).")
@click.option(
    "--sequence", "sequence_length", type=COUNT, help="Tokens in a sequence (default: the model's, at most 8192)."
)
@click.option(
    "--precision",
    type=click.Choice(("fp32", "bf16", "fp16")),
    help="bf16: matmuls under autocast (default fp32); fp16: with a gradient scaler, traced for cuda.",
)
@click.option("--attention", type=click.Choice(("fused", "math")), help="Fused kernel, or scores in memory.")
@click.option(
    "--recompute", type=click.Choice(("none", "full")), help="Keep every activation, or each layer's input only."
)
@click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Any field of model or recipe (may be repeated)."
)
@click.option(
    "--operations",
    type=click.Choice(("contractions", "all")),
    default="contractions",
    show_default=True,
    help="What counts as FLOPs.",
)
@click.option(
    "--count-attention",
    type=click.Choice(("full", "exact", "executed")),
    default="full",
    show_default=True,
    help="The full square, the mask pair by pair, or what the kernel runs.",
)
@click.option("--trace", "by_looking", is_flag=True, help="Run the real module on no memory instead of the formulas.")
@click.option("--target", type=click.Choice(("cpu", "cuda")), help="Device that the trace is for (default cpu).")
@click.option("--chip", metavar="CHIP", help="Whether its arithmetic or its memory sets the time of each line.")
@click.option("--strict", is_flag=True, help="Exit 1 when an operation has no rule.")
@click.option(
    "--what-if",
    multiple=True,
    metavar="NAME=VALUE",
    help="Trace again with this recipe: checkpoint=full, precision=bf16, optimizer=sgd ... (may be repeated).",
)
@click.option("--max-batch", type=BYTES, metavar="BYTES", help="The largest batch whose traced step fits.")
@click.option("--max-sequence", type=BYTES, metavar="BYTES", help="The longest sequence whose traced step fits.")
@click.option("--symbolic", is_flag=True, help="The polynomial instead of numbers.")
@click.option(
    "-o",
    "--output",
    type=NamedPath(dir_okay=False, writable=True, path_type=Path),
    help="Write the ledger: .json or .csv.",
)
@click.option(
    "--snapshot",
    type=NamedPath(exists=True, dir_okay=False, path_type=Path),
    help="A file of torch.cuda.memory._dump_snapshot instead of a model.",
)
@click.option("--allocator", metavar="CONF", help="PYTORCH_ALLOC_CONF to try on the snapshot.")
@json_option
def command(model: str | None, **options: Any) -> None:
    """Parameters, FLOPs and bytes of a training step of a model, and where they go.

    MODEL is a preset (`torchledger models`), a TOML file with a [model] table, a Hugging Face config.json, or a folder
    with one of these. With --trace also a function of your own file (file.py:build) that returns a model, (model,
    batch), a dict with `model`, `batch`, `loss`, `optimizer`, or a step; and a config.json is run as transformers
    builds it. A step is forward, backward, clipping and optimizer, of 1 sequence of min(model maximum, 8192)
    tokens unless you say otherwise.
    """
    snapshot, allocator = options["snapshot"], options["allocator"]
    if snapshot is not None:
        _refuse_others("snapshot", ("snapshot", "allocator", "as_json"))
        from torchledger.cli.snapshot import answer_snapshot

        answer_snapshot(snapshot, allocator, as_json=options["as_json"])
        return
    if allocator is not None:
        raise click.UsageError("--allocator goes with --snapshot")
    if model is None:
        raise click.UsageError("Missing argument 'MODEL' (or --snapshot FILE).")
    if _is_traced_elsewhere(model, options):
        return
    if options["by_looking"] and (options["symbolic"] or options["by"] in _LISTS):
        shown = "--symbolic" if options["symbolic"] else f"--by {options['by']}"
        raise click.UsageError(f"{shown} is by formula: leave out --trace")
    fields = {name: options[name] for name in ("batch_size", "sequence_length", "precision", "attention", "recompute")}
    asked = ask(model, fields, options["sets"])
    convention = Convention(options["operations"], options["count_attention"])
    if options["symbolic"]:
        from torchledger.cli.symbolic import answer_symbolic

        answer_symbolic(asked, convention, as_json=options["as_json"])
    elif options["by"] in _LISTS:
        _answer_list(asked, options)
    elif options["by_looking"]:
        from torchledger.cli.looking import answer_by_looking

        answer_by_looking(asked, convention, options)
    else:
        ledger = count(asked.model, asked.recipe, convention=convention)
        held = memory(asked.model, asked.recipe)
        assumptions = (*ledger.assumptions, f"fullest moment: {held.peak.name}", *held.assumptions)
        roofs = _roofline(ledger, options["chip"])
        told = replace(ledger, assumptions=assumptions)
        answer_step(asked, told, options, how="by formula", memory=held.peak.parts, more=roofs)
        if options["strict"] and not ledger.is_complete:
            raise Failed("incomplete: an operation has no rule")


def _roofline(ledger: Ledger, chip: str | None) -> tuple[Table, ...]:
    if chip is None:
        return ()
    from torchledger.machine import get as get_chip
    from torchledger.view.trace import roofline_table

    return (roofline_table(ledger.folded(), get_chip(chip)),)


def _is_traced_elsewhere(model: str, options: dict[str, Any]) -> bool:
    """Answer for what only a trace can tell of: a function of the user's file, an architecture of transformers.

    Raises:
        click.UsageError: an option that goes with `--trace` stands without it.
    """
    if not options["by_looking"]:
        for name in ("target", "what_if", "max_batch", "max_sequence"):
            if options[name]:
                raise click.UsageError(f"--{name.replace('_', '-')} goes with --trace")
        if options["by"] == "source":
            raise click.UsageError("--by source goes with --trace: a formula has no source lines")
        if is_own(model):
            raise click.UsageError(f"{model} is a function of a file: add --trace to run it on no memory")
        if options["precision"] == "fp16":
            raise click.UsageError("--precision fp16 goes with --trace --target cuda")
        return False
    if is_own(model):
        from torchledger.cli.looking import answer_own

        answer_own(model, options)
        return True
    if is_architecture(model):
        from torchledger.cli.looking import answer_architecture

        answer_architecture(model, options)
        return True
    return False


def _refuse_others(name: str, allowed: tuple[str, ...]) -> None:
    """An option that is the whole question stands alone.

    Raises:
        click.UsageError: something else was given beside it.
    """
    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        if given and parameter.name not in allowed:
            shown = parameter.opts[-1] if isinstance(parameter, click.Option) else (parameter.name or "").upper()
            raise click.UsageError(f"{shown} does not go with --{name}")


def _answer_list(asked: Asked, options: dict[str, Any]) -> None:
    """One of the lists that are no cut of the ledger."""
    model, recipe = asked.model, asked.recipe
    match options["by"]:
        case "parameter":
            found = parameters(model, recipe, expand=options["expand"])
            rows = [{**asdict(each), "num_parameters": each.total, "num_bytes": each.num_bytes} for each in found]
            answer = {"num_parameters": num_parameters(model), "parameters": rows}
            table = parameter_table(found, title=f"{model.name}: parameters")
        case "activation":
            kept = memory(model, recipe).activations
            answer = {"activation_bytes": sum(a.total_bytes for a in kept), "activations": [asdict(a) for a in kept]}
            table = activation_table(kept)
        case _:
            ways = per_token(model, recipe.sequence_length)
            answer = {"flops_per_token": [asdict(each) for each in ways]}
            table = convention_table(ways)
    if options["as_json"]:
        show_json("count", question_of(asked), answer)
    else:
        show((table,))
