"""`torchledger sample`: let a trained model write."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from torchledger.cli.documented import Documented
from torchledger.cli.named_path import NamedPath
from torchledger.cli.output import json_option, show_json
from torchledger.cli.quantity import COUNT
from torchledger.view.style import shown


@click.command(
    cls=Documented,
    examples=(
        "torchledger sample runs/latest",
        "torchledger sample runs/latest --prompt 'def main():' --length 200",
        "torchledger sample runs/latest --temperature 0    always the likeliest token",
    ),
)
@click.argument("run", type=NamedPath(exists=True, path_type=Path), default="runs/latest")
@click.option("--prompt", default="", help="What it continues; empty begins a new document.")
@click.option("--length", type=COUNT, default="200", show_default=True, help="Tokens to write, at most.")
@click.option("--temperature", type=click.FloatRange(0), default=0.8, show_default=True, help="0 takes the likeliest.")
@click.option("--top-k", type=click.IntRange(0), default=50, show_default=True, help="Draw from these only; 0 is all.")
@click.option("--seed", type=int, help="Of the drawing (default: the run's own).")
@click.option(
    "--device",
    type=click.Choice(("auto", "cpu", "cuda", "mps")),
    default="auto",
    show_default=True,
    help="Where to compute.",
)
@json_option
def command(run: Path, **options: Any) -> None:
    """Let a trained model write.

    RUN is a run's folder, which means its newest checkpoint, or one of its checkpoints. The same weights, seed and
    prompt give the same text.
    """
    from torchledger.meter.device import resolve
    from torchledger.trainer import SampleConfig, write_text_from

    prompt = _text_of(options["prompt"])
    config = SampleConfig(prompt, options["length"], options["temperature"], options["top_k"])
    text = write_text_from(run, config, resolve(options["device"]), options["seed"])
    if options["as_json"]:
        asked = {name: options[name] for name in ("length", "temperature", "top_k", "seed")}
        show_json("sample", {"run": str(run), "prompt": prompt, **asked}, {"prompt": prompt, "text": text})
    else:
        # to a pipe as it is; a terminal would obey the control codes that a model may write
        written = prompt + text
        click.echo(shown(written) if sys.stdout.isatty() else written)


def _text_of(word: str) -> str:
    """A word of the command line as text. Bytes that the locale could not read came as lone surrogates.

    Raises:
        click.BadParameter: they are not UTF-8.
    """
    if not any("\udc80" <= character <= "\udcff" for character in word):
        return word
    try:
        return os.fsencode(word).decode("utf-8")
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"not UTF-8 from byte {error.start + 1} on", param_hint="'--prompt'") from None
