"""`torchledger calibrate`: the planner's few free constants fitted to measured steps of the user's own cluster."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchledger.cli.documented import Documented
from torchledger.cli.failure import Failed
from torchledger.cli.named_path import NamedPath
from torchledger.cli.output import json_option, note, show, show_json

if TYPE_CHECKING:
    from torchledger.machine import Chip
    from torchledger.planner.constants import Constants
    from torchledger.planner.fitted import Fitted, Predict
    from torchledger.planner.measured import MeasuredRow


@click.command(
    cls=Documented,
    examples=(
        "torchledger calibrate --rows measured.csv      writes constants.toml",
        "torchledger calibrate --rows measured.csv -o h100.toml",
        "torchledger calibrate --rows planned.csv --suggest 5      which five of the planned runs to measure",
        "torchledger calibrate --rows measured.csv --strict      nothing is saved where a row is suspicious",
    ),
)
@click.option(
    "--rows",
    "table",
    required=True,
    type=NamedPath(exists=True, dir_okay=False, path_type=Path),
    help="CSV of measured steps; the least is told above.",
)
@click.option(
    "-o",
    "--output",
    type=NamedPath(dir_okay=False, path_type=Path),
    default=Path("constants.toml"),
    show_default=True,
    help="Where the constants are saved.",
)
@click.option(
    "--suggest", type=click.IntRange(1), metavar="N", help="Tell which N of the rows to measure; fit nothing."
)
@click.option("--strict", is_flag=True, help="Exit 2, and save nothing, where a row is more than 10 times off.")
@json_option
def command(table: Path, output: Path, suggest: int | None, strict: bool, as_json: bool) -> None:
    """Fit the planner's constants to measured steps of your own cluster.

    1 to 20 rows are enough; where there are more, all are fitted. `plan MODEL --constants FILE` then predicts with
    them, and with an interval. Where the default constants foretell rows clearly better than the other rows do, they
    are kept, and only the interval is learned. A row whose prediction is more than 10 times off is named: the table
    is wrong rather than the constants.

    The table is CSV with a header: at least model (a preset, a model file), stack (megatron, fsdp2 ...), gpu, n_gpus,
    precision, seq, global_batch, micro_batch, recompute (none, selective, full) and step_time_s (or
    tokens_per_s_per_gpu); where they are not 1 or none also fsdp_zero (ZeRO-1, FULL_SHARD ...), tp, sp, pp, vp,
    schedule, cp, ep; and what else of the cluster and the recipe a row knows (island, network_gbit_s, optimizer ...).
    A row that only has memory is left out. docs/measured-rows.md has every column.

    With --suggest N the rows are runs that you plan, measured or not: those N are told whose measurement leaves the
    others least uncertain. Five well chosen rows teach more than five others.
    """
    if suggest is not None:
        if strict:
            raise click.UsageError("--strict judges measured rows, and --suggest fits none: leave one of both out")
        _suggest(table, suggest, as_json=as_json)
        return
    from torchledger.planner.calibration import fit
    from torchledger.planner.calibration_file import fitted_to_toml
    from torchledger.planner.constants import default_constants
    from torchledger.planner.doubt import suspicious
    from torchledger.planner.likeness import place
    from torchledger.planner.measured import read_rows

    _require_writable(output)
    rows = [row for row in read_rows(table) if row.step_s is not None]
    chip = _one_chip(table, rows)
    _require_possible(rows)
    start = default_constants(chip)
    predicts = [_predict(row) for row in rows]
    told = suspicious([(row.place, _step_s(row), predict(start)) for row, predict in zip(rows, predicts, strict=True)])
    if told and strict:
        raise click.UsageError("\n".join((*told, "nothing is saved (--strict)")))
    places = [place(row.spec, row.recipe, row.strategy) for row in rows]
    fitted = fit([(predict, _step_s(row)) for predict, row in zip(predicts, rows, strict=True)], start, places=places)
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    output.write_text(fitted_to_toml(fitted, chip, rows=str(table), date=today), encoding="utf-8")
    _show((table, output), rows, predicts, (start, fitted), told, as_json=as_json)
    for line in told if as_json else ():  # the screen has them
        note(line)


def _require_writable(output: Path) -> None:
    """Refuse a place that nothing can be saved in, before minutes of fitting.

    Raises:
        click.UsageError: its folder is missing.
        Failed: it may not be written to.
    """
    if not output.parent.is_dir():
        raise click.UsageError(f"cannot save {output}: there is no folder {output.parent}")
    if not os.access(output if output.exists() else output.parent, os.W_OK):
        raise Failed(f"cannot save {output}: it may not be written to")


def _show(
    paths: tuple[Path, Path],
    rows: Sequence[MeasuredRow],
    predicts: Sequence[Predict],
    constants: tuple[Constants, Fitted],
    told: tuple[str, ...],
    *,
    as_json: bool,
) -> None:
    from torchledger.planner.calibration import ENOUGH
    from torchledger.planner.calibration_file import constant_range
    from torchledger.planner.likeness import place
    from torchledger.view.plan_calibration import RowFit, calibration_screen, mean_after

    (table, output), (start, fitted) = paths, constants
    fits = []
    for row, predict in zip(rows, predicts, strict=True):
        here = place(row.spec, row.recipe, row.strategy)
        after, interval = fitted.expected(predict, here), fitted.interval(predict, here)
        alone = predict(fitted.constants)
        fits.append(RowFit(_name(row), _step_s(row), predict(start), alone, after, interval))
    assumptions = tuple(dict.fromkeys(f"{row.place}: {each}" for row in rows for each in row.assumed))
    if len(rows) > ENOUGH:
        assumptions = (f"all {len(rows)} rows are fitted; 1 to {ENOUGH} are enough", *assumptions)
    if as_json:
        answer = {
            "num_rows": fitted.num_rows,
            "mean_absolute_error_before": fitted.before,
            "mean_absolute_error_constants": fitted.after,
            "mean_absolute_error_after": mean_after(fits),
            "mean_absolute_error_held_out": fitted.held_out,
            "is_default": fitted.is_default,
            "constants": asdict(fitted.constants),
            "intervals": {name: constant_range(fitted, name) for name in fitted.names},
            "rows": [{**asdict(each), "is_inside": each.is_inside} for each in fits],
            "suspicious": list(told),
            "path": str(output),
        }
        show_json("calibrate", {"rows": str(table)}, answer, assumptions)
    else:
        show(calibration_screen(fitted, start, fits, saved=str(output), assumptions=assumptions, suspicious=told))


def _suggest(table: Path, num_rows: int, *, as_json: bool) -> None:
    """Tell which rows to measure."""
    from torchledger.planner.constants import default_constants
    from torchledger.planner.informative import informative
    from torchledger.planner.likeness import place
    from torchledger.planner.measured import read_rows
    from torchledger.view.plan_calibration import suggestion_screen

    rows = read_rows(table, planned=True)
    _require_possible(rows)
    start = default_constants(_one_chip(table, rows))
    places = [place(row.spec, row.recipe, row.strategy) for row in rows]
    told = informative([_predict(row) for row in rows], places, start, num_rows)
    names = [_name(rows[i]) for i in told]
    if as_json:
        answer = {"rows": [{"place": rows[i].place, "name": name} for i, name in zip(told, names, strict=True)]}
        show_json("calibrate", {"rows": str(table), "suggest": num_rows}, answer, ())
    else:
        show(suggestion_screen(names, len(rows)))


def _require_possible(rows: Sequence[MeasuredRow]) -> None:
    """Refuse rows that `plan` would refuse: constants that explain them explain nothing.

    Raises:
        MeasuredError: with every rule that a row breaks, each with the row's line.
    """
    from torchledger.planner.doubt import impossible
    from torchledger.planner.measured import MeasuredError

    if told := impossible(rows):
        raise MeasuredError("\n".join(told))


def _one_chip(table: Path, rows: Sequence[MeasuredRow]) -> Chip:
    """The chip of all rows.

    Raises:
        click.UsageError: no row has seconds, or rows are of several chips.
    """
    chips = {row.cluster.chip.key: row.cluster.chip for row in rows}
    if not chips:
        raise click.UsageError(f"{table}: no row has seconds of a step (step_time_s or tokens_per_s_per_gpu)")
    if len(chips) > 1:
        named = ", ".join(chips)
        raise click.UsageError(f"{table}: rows of {len(chips)} chips ({named}); constants are of one: split the file")
    return next(iter(chips.values()))


def _predict(row: MeasuredRow) -> Predict:
    """Seconds of the row's step under given constants."""
    from torchledger.planner.estimator import Estimator

    def seconds(constants: Constants) -> float:
        estimator = Estimator(row.spec, row.recipe, row.cluster, constants=constants)
        return estimator.estimate(row.strategy).step_s

    return seconds


def _step_s(row: MeasuredRow) -> float:
    assert row.step_s is not None  # rows without are left out
    return row.step_s


def _name(row: MeasuredRow) -> str:
    from torchledger.view.plan_search import strategy_text

    place = row.place.rpartition(":")[2]
    return f"line {place}: {row.spec.name} {strategy_text(row.strategy, row.recipe)}"
