"""`torchledger export`: a checkpoint's weights as one file, or as a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from torchledger.cli.documented import Documented
from torchledger.cli.named_path import NamedPath
from torchledger.cli.output import json_option, note, show_json


@click.command(
    cls=Documented,
    examples=(
        "torchledger export runs/latest --out model.safetensors",
        "torchledger export runs/latest --precision bf16 --out model.safetensors",
        "torchledger export runs/latest --format huggingface --out my-model    a folder that transformers loads",
        "torchledger export runs/latest/checkpoints/step-00000200 --out step-200.safetensors",
    ),
)
@click.argument("source", metavar="RUN", type=NamedPath(exists=True, path_type=Path), default="runs/latest")
@click.option(
    "--out",
    type=NamedPath(path_type=Path),
    help="The file, or with huggingface the folder (default: model.safetensors, or huggingface).",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(("safetensors", "huggingface")),
    default="safetensors",
    show_default=True,
    help="One file with our names of tensors, or config.json and weights as transformers has them.",
)
@click.option(
    "--precision",
    type=click.Choice(("fp32", "bf16", "fp16")),
    help="Round the weights to this format (default: as they are).",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@json_option
def command(source: Path, out: Path | None, **options: Any) -> None:
    """Write a checkpoint's weights into one safetensors file.

    RUN is a run's folder, which means its newest checkpoint, or one of its checkpoints, saved by any number of ranks.
    What is written is whole or not there, and reading it runs no code. With --format huggingface it is a folder with
    the weights in one safetensors file, the config.json of the family that has this model, and the tokenizer.
    """
    precision: str | None = options["precision"]
    if options["form"] == "huggingface":
        _huggingface(source, out or Path("huggingface"), precision, as_json=options["as_json"])
        return
    out = out or Path("model.safetensors")
    if out.is_dir():
        raise click.UsageError(f"{out} is a folder; --out is a file, but with --format huggingface")
    if out.exists() and not options["force"]:
        raise click.UsageError(f"{out} is there already; give another --out, or --force to replace it")
    from torchledger.trainer.export import export_weights

    exported = export_weights(source, out, precision)
    if options["as_json"]:
        answer = {
            "path": str(exported.path),
            "checkpoint": str(exported.checkpoint),
            "step": exported.step,
            "num_tensors": exported.num_tensors,
            "num_parameters": exported.num_parameters,
            "num_bytes": exported.num_bytes,
        }
        show_json("export", {"run": str(source), "precision": precision}, answer)
        return
    click.echo(
        f"{exported.path}: {exported.num_parameters:,} parameters in {exported.num_tensors} tensors, "
        f"{exported.num_bytes:,} bytes, of {exported.checkpoint}"
    )


def _huggingface(source: Path, out: Path, precision: str | None, *, as_json: bool) -> None:
    from torchledger.trainer.export_huggingface import export_huggingface

    exported = export_huggingface(source, out, precision)
    if as_json:
        answer = {
            "path": str(exported.path),
            "checkpoint": str(exported.checkpoint),
            "step": exported.step,
            "model_type": exported.model_type,
            "num_parameters": exported.num_parameters,
        }
        show_json("export", {"run": str(source), "precision": precision}, answer, exported.notes)
        return
    click.echo(
        f"{exported.path}: {exported.num_parameters:,} parameters as a {exported.model_type}, of {exported.checkpoint}"
    )
    for line in exported.notes:
        note(line)
