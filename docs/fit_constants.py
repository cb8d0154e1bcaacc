"""Fit the planner's default constants to published steps, with each family of sources left out in turn.

Writes tests/published/throughput/folds.toml: `[all]` is what `planner/data/constants.toml` ships, the other tables are
what the rows of that family are predicted with in `validation-time.md`, so that no row helps to predict itself or a row
of the same authors. Takes minutes; `make folds` runs it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchledger.planner.calibration import fit
from torchledger.planner.constants import Constants, default_constants
from torchledger.planner.estimator import Estimator
from torchledger.planner.fitted import Fitted, Predict
from torchledger.planner.measured import MeasuredRow, read_table

ROOT = Path(__file__).parents[1]
ROWS = ROOT / "tests" / "published" / "throughput"
TARGET = ROWS / "folds.toml"

#: What is fitted, and the spread of its logarithm that the prior allows.
SPREADS: Mapping[str, float] = {"matmul_share": 0.15, "memory_share": 0.2, "host_s": 0.4}
#: Before anything is fitted: what the shares would be if nothing but the best measured kernels ran.
START = {"matmul_share": 0.8, "memory_share": 0.8}
#: Rows of one source that are fitted, and what a row counts at most: rows of one table are no independent witnesses.
PER_SOURCE, LARGEST_WEIGHT = 30, 0.3


def fitting_rows() -> tuple[MeasuredRow, ...]:
    """Dense models with stated or recipe layouts, of quality A or B, evenly spaced in each source's table."""
    by_source: dict[str, list[MeasuredRow]] = {}
    for path in sorted(ROWS.glob("*.csv")):
        for row in read_table(path, ROWS / "sources.toml").rows:
            if row.step_s is None or row.kind != "dense" or row.standing == "assumed" or row.quality == "C":
                continue
            by_source.setdefault(row.source, []).append(row)
    return tuple(row for rows in by_source.values() for row in rows[:: max(1, len(rows) // PER_SOURCE)][:PER_SOURCE])


def predictor(row: MeasuredRow) -> Predict:
    """Seconds of the row's step under constants whose host times are multiples of the chip's own."""
    estimator = Estimator(row.spec, row.recipe, row.cluster)
    own = default_constants(row.cluster.chip)

    def predict(constants: Constants) -> float:
        host: dict[str, Any] = {"host_s": own.host_s * constants.host_s, "checkpoint_host_s": own.checkpoint_host_s}
        return estimator.with_constants(replace(constants, **host)).step(row.strategy).step_s

    return predict


def fitted(rows: Sequence[MeasuredRow], predicts: Mapping[int, Predict]) -> Fitted:
    """Every family weighs alike, up to the largest weight of a row."""
    sizes = Counter(row.family for row in rows)
    even = len(rows) / len(sizes)
    weights = [min(1.0, even / sizes[row.family]) * LARGEST_WEIGHT for row in rows]
    own: dict[str, Any] = {**START, "host_s": 1.0}
    start = replace(default_constants(rows[0].cluster.chip), **own)
    pairs = [(predicts[id(row)], row.step_s or 0.0) for row in rows]
    return fit(pairs, start, spreads=SPREADS, weights=weights)


def table(name: str, found: Fitted) -> str:
    """One table of the file; `host_s` as a multiple of the chip's default."""
    lines = [f'["{name}"]', f"num_rows = {found.num_rows}", f"sigma = {found.sigma:.4f}"]
    for each in SPREADS:
        key = "host_factor" if each == "host_s" else each
        lines.append(f"{key} = {getattr(found.constants, each):.4f}")
    return "\n".join(lines)


def main() -> None:
    """Fit and write."""
    rows = fitting_rows()
    predicts = {id(row): predictor(row) for row in rows}
    families = sorted({row.family for row in rows})
    tables = [table("all", fitted(rows, predicts))]
    for number, family in enumerate(families, 1):
        print(f"{number}/{len(families)} without {family}", file=sys.stderr)
        tables.append(table(family, fitted([row for row in rows if row.family != family], predicts)))
    head = "# Written by docs/fit_constants.py (`make folds`): constants fitted without the rows of each family."
    TARGET.write_text("\n\n".join([head, *tables]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
