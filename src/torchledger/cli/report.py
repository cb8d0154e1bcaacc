"""`torchledger report`: one HTML file of a run."""

from __future__ import annotations

from pathlib import Path

import click

from torchledger.cli.documented import Documented
from torchledger.cli.named_path import NamedPath
from torchledger.cli.output import json_option, show_json
from torchledger.cli.runs import REPORT_NAME, NoRun, read_any
from torchledger.ledger import Ledger
from torchledger.view.page import page


@click.command(
    cls=Documented,
    examples=(
        "torchledger report runs/latest                 writes runs/latest/report.html",
        "torchledger report runs/latest -o mine.html",
        "torchledger report runs/latest -o -            to stdout",
    ),
)
@click.argument("run", type=NamedPath(exists=True, path_type=Path))
@click.option("-o", "--output", type=NamedPath(path_type=Path, allow_dash=True), help="The file to write; - is stdout.")
@json_option
def command(run: Path, output: Path | None, as_json: bool) -> None:
    """One HTML file of a run: closing table, curves, memory, FLOPs, configuration.

    It fetches nothing, works offline, and has its data inside: `torchledger compare report.html` reads it back.
    """
    if as_json and str(output) == "-":
        raise click.UsageError("-o - writes the page to stdout, where --json writes its answer; leave one of them out")
    record = read_any(run)
    if isinstance(record, Ledger):
        raise NoRun(f"{run} is a ledger, not a run; `torchledger compare` holds it against another")
    target = output or (run / REPORT_NAME if run.is_dir() else run.with_suffix(".html"))
    html = page(record)
    if str(target) == "-":
        click.echo(html, nl=False)
        return
    target.write_text(html, encoding="utf-8")
    if as_json:
        show_json("report", {"run": str(run)}, {"path": str(target), "num_bytes": len(html.encode())})
    else:
        click.echo(str(target))
