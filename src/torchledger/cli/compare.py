"""`torchledger compare`: predicted against measured, or one ledger against another; exit code 4 beyond tolerance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from torchledger.cli.documented import Documented
from torchledger.cli.failure import BEYOND_TOLERANCE
from torchledger.cli.named_path import NamedPath
from torchledger.cli.output import json_option, note, show, show_json
from torchledger.cli.quantity import SHARE
from torchledger.cli.runs import NoRun, read_any
from torchledger.ledger import Difference, Ledger, RunRecord, beyond
from torchledger.view.closing import closing_table
from torchledger.view.comparison import apart_table, ledger_differences
from torchledger.view.screen import Block, Lines

_PATH = NamedPath(exists=True, path_type=Path)


@click.command(
    cls=Documented,
    examples=(
        "torchledger compare runs/latest                      did it cost what was predicted?",
        "torchledger compare runs/latest/report.html          the same, from the report alone",
        "torchledger compare formula.json trace.json          two ledgers, account by account",
        "torchledger compare a.json b.json --tolerance 1%",
    ),
)
@click.argument("first", type=_PATH)
@click.argument("second", type=_PATH, required=False)
@click.option("--tolerance", type=SHARE, default=0.0, help="Of FLOPs between two ledgers (default exact).")
@click.option("--bytes-tolerance", type=SHARE, help="Of bytes too (default: told without a target).")
@json_option
@click.pass_context
def command(ctx: click.Context, /, first: Path, second: Path | None, **options: Any) -> None:
    """Hold a run, a report or a ledger against another, line by line.

    With one path, a closed run: its prediction against its measurement. With two, their ledgers: FIRST is the
    prediction, SECOND what it is held against. Exit code 4 when something is beyond its tolerance.
    """
    if second is None:
        differences = _closed(first)
        screen: tuple[Block, ...] = (closing_table(differences),)
    else:
        mine, theirs = _ledger_of(first), _ledger_of(second)
        tolerances = {name: options[name] for name in ("tolerance", "bytes_tolerance")}
        differences = ledger_differences(mine, theirs, **tolerances)
        apart = apart_table(mine, theirs) or Lines(("no account is apart in FLOPs",), mark="note")
        screen = (closing_table(differences, sides=("first", "second")), apart)
    over = beyond(differences)
    if options["as_json"]:
        question = {"first": str(first), "second": str(second) if second else None, "tolerance": options["tolerance"]}
        show_json("compare", question, {"differences": [_row(d) for d in differences], "num_beyond": len(over)})
    else:
        show(screen)
    if over:
        note(f"beyond tolerance: {', '.join(difference.quantity for difference in over)}")
        ctx.exit(BEYOND_TOLERANCE)


def _closed(path: Path) -> Sequence[Difference]:
    """The closing table of a run.

    Raises:
        NoRun: a ledger has no measurement beside it, or the run's books are not closed.
    """
    found = read_any(path)
    if isinstance(found, Ledger):
        raise NoRun(f"{path} is one ledger; give a second one to hold it against")
    if not found.differences:
        raise NoRun(f"{path}: the books of this run are not closed yet; they are when training ends")
    return found.differences


def _ledger_of(path: Path) -> Ledger:
    found: RunRecord | Ledger | None = read_any(path)
    if isinstance(found, RunRecord):
        found = found.ledger
    if found is None:
        raise NoRun(f"{path}: this run has no ledger")
    return found.folded()


def _row(difference: Difference) -> dict[str, Any]:
    return {
        **asdict(difference),
        "difference": difference.difference,
        "relative": difference.relative,
        "within": difference.within,
    }
