"""`torchledger machines`: the accelerators that are known."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchledger import machine
from torchledger.cli.complete import chip_names
from torchledger.cli.documented import Documented
from torchledger.cli.named_path import NamedPath
from torchledger.cli.output import json_option, show, show_json
from torchledger.units import format_bytes
from torchledger.view.machine import chip_screen, chips_table, here_screen

if TYPE_CHECKING:
    from torchledger.meter.device import DeviceFacts


@click.command(
    cls=Documented,
    examples=(
        "torchledger machines              all of them",
        "torchledger machines h100         one, every fact with its source",
        "torchledger machines 'NVIDIA A100-SXM4-80GB'",
        "torchledger machines --here       this machine, and its row in the catalog (needs torch)",
    ),
)
@click.argument("name", required=False, shell_complete=chip_names)
@click.option(
    "--catalog",
    "own_files",
    multiple=True,
    type=NamedPath(exists=True, dir_okay=False, path_type=Path),
    help="A TOML file with rows of your own (may be repeated).",
)
@click.option("--here", is_flag=True, help="The machine at hand, and the row of the catalog that fits it.")
@json_option
def command(name: str | None, own_files: tuple[Path, ...], here: bool, as_json: bool) -> None:
    """The accelerators that are known, with their peaks, memory and sources.

    Peaks are dense. A vendor's figure with structured sparsity stands beside it and is never used.
    """
    catalog = machine.load(own_files) if own_files else None
    if here:
        if name is not None:
            raise click.UsageError("--here asks for this machine; leave the name out")
        _answer_here(catalog, as_json=as_json)
        return
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


def _answer_here(catalog: machine.Catalog | None, *, as_json: bool) -> None:
    """What the system tells of each device here, and which row of the catalog it is."""
    from torchledger.meter.device import facts, resolve

    kinds = dict.fromkeys(("cpu", resolve("auto").type))
    found = [facts(resolve(kind)) for kind in kinds]  # type: ignore[arg-type]
    chips = [machine.match(each.name, each.total_bytes, catalog=catalog) for each in found]
    if as_json:
        rows = [
            {**asdict(each), "catalog_key": None if chip is None else chip.key}
            for each, chip in zip(found, chips, strict=True)
        ]
        show_json("machines", {"here": True}, rows)
        return
    for each, chip in zip(found, chips, strict=True):
        show(here_screen(each.name, _told(each), chip))


def _told(found: DeviceFacts) -> tuple[tuple[str, str], ...]:
    units = {True: "yes", False: "no", None: "unknown"}[found.has_bf16_units]
    return (
        ("kind", found.kind),
        ("cores", str(found.num_cores)),
        ("memory", f"{format_bytes(found.free_bytes)} free of {format_bytes(found.total_bytes)}"),
        ("multiplies BF16 in hardware", units),
    )
