"""`torchledger machines`: the accelerators that are known."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from torchledger import machine
from torchledger.cli.complete import chip_names
from torchledger.cli.documented import Documented
from torchledger.cli.output import json_option, show, show_json
from torchledger.view.machine import chip_screen, chips_table


@click.command(
    cls=Documented,
    examples=(
        "torchledger machines              all of them",
        "torchledger machines h100         one, every fact with its source",
        "torchledger machines 'NVIDIA A100-SXM4-80GB'",
    ),
)
@click.argument("name", required=False, shell_complete=chip_names)
@click.option(
    "--catalog",
    "own_files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A TOML file with rows of your own (may be repeated).",
)
@json_option
def command(name: str | None, own_files: tuple[Path, ...], as_json: bool) -> None:
    """The accelerators that are known, with their peaks, memory and sources.

    Peaks are dense. A vendor's figure with structured sparsity stands beside it and is never used.
    """
    catalog = machine.load(own_files) if own_files else None
    if name is None:
        chips = machine.list_chips(catalog)
        if as_json:
            show_json("machines", {}, [asdict(chip) for chip in chips])
        else:
            show((chips_table(chips),))
        return
    chip = machine.get(name, catalog=catalog)
    if as_json:
        show_json("machines", {"name": name}, asdict(chip))
    else:
        show(chip_screen(chip, machine.describe(chip)))
