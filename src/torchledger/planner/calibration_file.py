"""Fitted constants on disk: a file of the form of `data/constants.toml`, with what they are known to beside.

[h100-sxm]                 # the constants, read by `default_constants` like any others
matmul_share = 0.93
...
[fit]                      # what an interval needs
chip = "h100-sxm"
names = ["matmul_share", "host_s"]
covariance = [[0.01, 0.0], [0.0, 0.2]]
sigma = 0.03
[fit.rest]                 # what the constants left over of each row, for questions like it
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from statistics import NormalDist
from typing import Any

from torchledger.machine import Chip
from torchledger.planner.algebra import Matrix
from torchledger.planner.constants import Constants, default_constants
from torchledger.planner.errors import PlanError
from torchledger.planner.fitted import Fitted, Rest
from torchledger.planner.likeness import NUM_FEATURES


def fitted_to_toml(fitted: Fitted, chip: Chip, *, rows: str, date: str) -> str:
    """The file's text.

    Args:
        fitted: what was fitted.
        chip: of the measured rows.
        rows: where they stand, for people.
        date: of the fit.
    """
    import tomli_w

    constants = {each.name: getattr(fitted.constants, each.name) for each in fields(Constants)}
    told = {name: value for name, value in constants.items() if value is not None}
    fit: dict[str, Any] = {
        "chip": chip.key,
        "rows": rows,
        "date": date,
        "names": list(fitted.names),
        "covariance": [list(row) for row in fitted.covariance],
        "sigma": fitted.sigma,
        "degrees": fitted.degrees,
        "num_rows": fitted.num_rows,
        "before": fitted.before,
        "after": fitted.after,
    }
    if fitted.held_out is not None:
        fit["held_out"] = fitted.held_out
    if fitted.rest is not None:
        fit["rest"] = {
            "places": [list(each) for each in fitted.rest.places],
            "pull": list(fitted.rest.pull),
            "precision": [list(row) for row in fitted.rest.precision],
            "slopes": [list(row) for row in fitted.rest.slopes],
            "shared": fitted.rest.shared,
        }
    return tomli_w.dumps({chip.key: told, "fit": fit})


def read_fitted(path: Path, chip: Chip) -> tuple[Constants, Fitted | None]:
    """The constants of a file, and what they are known to; nothing of that where somebody wrote the file by hand.

    Raises:
        PlanError: the file is no such file, or of another chip.
        OSError: it cannot be read.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"{path}: is no TOML: {error}; `torchledger calibrate` writes such files") from None
    known = {"all", chip.architecture.lower(), chip.key}
    if not known & tables.keys():
        there = ", ".join(name for name in tables if name != "fit") or "nothing"
        raise PlanError(f"{path}: has constants of {there}, none of {chip.key}; calibrate with rows of that chip")
    constants = default_constants(chip, path)
    if "fit" not in tables:
        return constants, None
    try:
        return constants, _fitted(tables["fit"], constants)
    except (KeyError, TypeError, ValueError) as error:
        raise PlanError(f"{path}: the table [fit] is damaged: {error}; calibrate again") from None


def constant_range(fitted: Fitted, name: str, probability: float = 0.9) -> tuple[float, float]:
    """Where a fitted constant lies with this probability."""
    index = fitted.names.index(name)
    half = NormalDist().inv_cdf(0.5 + probability / 2) * math.sqrt(fitted.covariance[index][index])
    middle = getattr(fitted.constants, name)
    return middle * math.exp(-half), middle * math.exp(half)


def _fitted(fit: Mapping[str, Any], constants: Constants) -> Fitted:
    names = tuple(fit["names"])
    covariance = tuple(tuple(float(each) for each in row) for row in fit["covariance"])
    if any(len(row) != len(names) for row in covariance) or len(covariance) != len(names):
        raise ValueError(f"{len(names)} names need a covariance of {len(names)} rows of as many numbers")
    return Fitted(
        constants=constants,
        names=names,
        covariance=covariance,
        sigma=float(fit["sigma"]),
        degrees=float(fit["degrees"]),
        num_rows=int(fit["num_rows"]),
        before=float(fit["before"]),
        after=float(fit["after"]),
        held_out=float(fit["held_out"]) if "held_out" in fit else None,  # an earlier version's does not know
        rest=_rest(fit["rest"], len(names)) if "rest" in fit else None,
    )


def _rest(table: Mapping[str, Any], num_names: int) -> Rest:
    """What the constants left over of the rows.

    Raises:
        ValueError: tables of different sizes.
    """
    places, precision, slopes = (_matrix(table[name]) for name in ("places", "precision", "slopes"))
    pull = tuple(float(each) for each in table["pull"])
    size = len(pull)
    lengths = {len(places), len(precision), len(slopes), *(len(row) for row in precision)}
    if lengths != {size} or any(len(row) != num_names for row in slopes):
        raise ValueError(f"[fit.rest] has tables of different sizes for {size} rows")
    if any(len(row) != NUM_FEATURES for row in places):
        raise ValueError(f"[fit.rest] has places of another version, this one knows {NUM_FEATURES} features")
    return Rest(places, pull, precision, slopes, float(table["shared"]))


def _matrix(rows: Any) -> Matrix:
    return tuple(tuple(float(each) for each in row) for row in rows)
