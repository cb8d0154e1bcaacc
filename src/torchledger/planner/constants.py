"""`Constants`: the few numbers that facts of a data sheet do not give, each with where it comes from.

Defaults are read from `data/constants.toml`. `calibrate` fits them to measured rows of the user's own cluster and
writes a file of the same form.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from torchledger.machine import Chip
from torchledger.planner.efficiency import UNALIGNED_SHARE
from torchledger.planner.errors import PlanError


@dataclass(frozen=True, slots=True)
class Constants:
    """What a prediction of time is made with beside the facts of chip and cluster.

    Attributes:
        matmul_share: of the largest measured matrix product rate of the chip (of its architecture's share of the peak
            where nobody measured), what products and attention inside a training step sustain, at the clock that its
            power limit leaves.
        memory_share: of the memory's bandwidth, what kernels that only move bytes sustain.
        attention_factor: rates of fused attention kernels, over those that are published of them
            (`data/attention.toml`), beside what matmul_share takes from both.
        unaligned_share: share of a product's rate that is left when its rows are aligned to two elements only.
        kernel_s: seconds that a kernel takes to start and to fill the chip.
        host_s: seconds that the host needs to issue an operation of an eager stack; a device that is faster waits.
        checkpoint_host_s: seconds that the host needs more for each layer that is recomputed.
        link_factor, network_factor: rates of collectives inside an island and between islands, over those that are
            published of links of their kind (`data/links.toml`).
        drag: of two things that overlap, how much of the shorter shows all the same.
        overhead: what a step takes over the sum of its parts: jitter, stragglers of one island, gaps that no part
            explains.
        straggler: share by which a step is longer for every doubling of the number of islands.
        step_s: seconds of a step that no model explains: the loop, logging, the data's arrival.
        sigma: spread of the logarithm of a measured step about its prediction; nothing if nobody knows.
        source: where they come from, printed with the answer.
    """

    matmul_share: float = 1.0
    memory_share: float = 0.85
    attention_factor: float = 1.0
    unaligned_share: float = UNALIGNED_SHARE
    kernel_s: float = 3e-6
    host_s: float = 1e-5
    checkpoint_host_s: float = 1e-4
    link_factor: float = 1.0
    network_factor: float = 1.0
    drag: float = 0.1
    overhead: float = 1.0
    straggler: float = 0.005
    step_s: float = 0.005
    sigma: float | None = None
    source: str = ""


def default_constants(chip: Chip, path: Path | None = None) -> Constants:
    """The constants of an uncalibrated chip: those for all, then those of its architecture.

    Args:
        chip: whose.
        path: a file of the user's, which says the same things for another cluster.

    Raises:
        PlanError: the file names a constant that does not exist, or has no number where one belongs.
    """
    tables = _tables(path)
    known = {each.name for each in fields(Constants)}
    merged: dict[str, Any] = {}
    for name in ("all", chip.architecture.lower(), chip.key):
        merged.update(tables.get(name, {}))
    merged = {name: value for name, value in merged.items() if name not in {"date", "note"}}
    mistakes = [f"{name} is {value!r}; {rule}" for name, value in merged.items() if (rule := _broken(name, value))]
    if unknown := sorted(set(merged) - known):
        mistakes.append(f"no such constant: {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    if mistakes:
        raise PlanError("\n".join(f"{path or 'constants.toml'}: {each}" for each in mistakes))
    return replace(Constants(), **merged)


def _broken(name: str, value: object) -> str:
    """The rule that a constant's value breaks; nothing if it can be."""
    if name == "source":
        return "" if isinstance(value, str) else "it must be text"
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return "it must be a number"
    if value < 0 or (value == 0 and name in _ABOVE_ZERO):
        return f"it must be {'above zero' if name in _ABOVE_ZERO else 'zero or more'}"
    return ""


#: What something is divided by, or a spread.
_ABOVE_ZERO = frozenset(
    {"matmul_share", "memory_share", "unaligned_share", "link_factor", "network_factor", "overhead", "sigma"}
)


def _tables(path: Path | None) -> dict[str, dict[str, Any]]:
    """Of a file as it is now: it may be calibrated again."""
    return _own_tables() if path is None else tomllib.loads(path.read_text(encoding="utf-8"))


@cache
def _own_tables() -> dict[str, dict[str, Any]]:
    return tomllib.loads(
        resources.files("torchledger.planner").joinpath("data/constants.toml").read_text(encoding="utf-8")
    )
