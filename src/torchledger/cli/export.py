"""`torchledger export`: a checkpoint's weights as one file."""

from __future__ import annotations

from pathlib import Path

import click

from torchledger.cli.documented import Documented
from torchledger.cli.output import json_option, show_json


@click.command(
    cls=Documented,
    examples=(
        "torchledger export runs/latest --out model.safetensors",
        "torchledger export runs/latest --precision bf16 --out model.safetensors",
        "torchledger export runs/latest/checkpoints/step-00000200 --out step-200.safetensors",
    ),
)
@click.argument("source", metavar="RUN", type=click.Path(exists=True, path_type=Path), default="runs/latest")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default="model.safetensors",
    show_default=True,
    help="The file.",
)
@click.option(
    "--precision",
    type=click.Choice(("fp32", "bf16", "fp16")),
    help="Round the weights to this format (default: as they are).",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@json_option
def command(source: Path, out: Path, precision: str | None, force: bool, as_json: bool) -> None:
    """Write a checkpoint's weights into one safetensors file.

    RUN is a run's folder, which means its newest checkpoint, or one of its checkpoints, saved by any number of ranks.
    The file is whole or not there, and reading it runs no code.
    """
    if out.exists() and not force:
        raise click.UsageError(f"{out} is there already; give another --out, or --force to replace it")
    from torchledger.trainer.export import export_weights

    exported = export_weights(source, out, precision)
    if as_json:
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
