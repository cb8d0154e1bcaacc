"""Energy of a run: watts of the chips and what stands around them, times seconds; carbon where the grid's is given."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from torchledger.machine import Chip, Cluster
from torchledger.planner.errors import PlanError
from torchledger.units import format_number, format_percent

#: Joules of a kilowatt-hour.
J_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class Power:
    """What one chip draws, and what is drawn for it.

    Attributes:
        chip_w: watts of the chip under load.
        host_w: watts of its share of the host: processors, fans, network, losses of the power supply.
        pue: power usage effectiveness: watts of the building over watts of its machines.
        assumptions: how each came about.
    """

    chip_w: float
    host_w: float
    pue: float
    assumptions: tuple[str, ...]

    @property
    def watts(self) -> float:
        """Watts for one chip, all together.

        >>> Power(700, 350, 1.1, ()).watts
        1155.0
        """
        return (self.chip_w + self.host_w) * self.pue


def power(
    chip: Chip, *, tdp_share: float | None = None, host_w: float | None = None, pue: float | None = None
) -> Power | None:
    """The power of one chip under training.

    Args:
        chip: whose thermal design power is a fact of the catalog.
        tdp_share: share of it that is drawn; nothing is the stated assumption of `data/energy.toml`.
        host_w: watts of the host for one chip; nothing is what was measured of that chip's node, or else left out.
        pue: at least 1; nothing leaves cooling and distribution out.

    Returns:
        The power, or nothing where the chip's is unknown.

    Raises:
        PlanError: a share, watts or PUE that cannot be; all of them at once.
    """
    _check(tdp_share, host_w, pue)
    if chip.tdp_w is None:
        return None
    rows = _rows()
    share = rows["chip"]["share_of_tdp"] if tdp_share is None else tdp_share
    why = f"{rows['chip']['what']}; {rows['chip']['source']}" if tdp_share is None else "as given"
    chip_w = chip.tdp_w * share
    notes = [f"power: {format_percent(share)} of {chip.name}'s {format_number(chip.tdp_w)} W ({why})"]
    node = rows["host"].get(chip.key)
    if host_w is not None:
        notes.append(f"power of the host: {format_number(host_w)} W a chip, as given")
    elif node is None:
        host_w = 0.0
        notes.append(f"power of the host is not counted: none is known for {chip.name}; --host-power gives it")
    else:
        host_w = max(0.0, node["node_w"] / node["chips_per_node"] - chip_w)
        notes.append(f"power of the host: {format_number(host_w)} W a chip, from {node['what']}; {node['source']}")
    if pue is None:
        notes.append("cooling and distribution are not counted (a PUE of 1): --pue gives the building's")
    else:
        notes.append(f"PUE {format_number(pue)}, as given")
    return Power(chip_w, host_w, 1.0 if pue is None else pue, tuple(notes))


def energy_j(
    cluster: Cluster,
    seconds: float,
    *,
    tdp_share: float | None = None,
    host_w: float | None = None,
    pue: float | None = None,
) -> float | None:
    """Joules of `cluster` under load for `seconds`; nothing where the chip's power is unknown.

    >>> from torchledger.machine import parse_cluster
    >>> energy_j(parse_cluster("h100x8"), 3600, host_w=0, pue=1) == 8 * 700 * 3600
    True
    """
    drawn = power(cluster.chip, tdp_share=tdp_share, host_w=host_w, pue=pue)
    return None if drawn is None else drawn.watts * cluster.num_chips * seconds


def carbon_kg(energy_j: float | None, g_per_kwh: float | None) -> float | None:
    """Kilograms of CO2 (equivalents) at the grid's intensity; nothing where either is unknown.

    >>> carbon_kg(3.6e6 * 1000, 400)
    400.0
    """
    if g_per_kwh is not None and not (math.isfinite(g_per_kwh) and g_per_kwh >= 0):
        raise PlanError(f"carbon is {g_per_kwh} g/kWh; it must be zero or more (--carbon 400)")
    if energy_j is None or g_per_kwh is None:
        return None
    return energy_j / J_PER_KWH * g_per_kwh / 1000


def _check(tdp_share: float | None, host_w: float | None, pue: float | None) -> None:
    mistakes = []
    if tdp_share is not None and not 0 < tdp_share <= 2:
        mistakes.append(
            f"the share of the thermal design power is {tdp_share}; it lies between 0 and 2 (--tdp-share 0.9)"
        )
    if host_w is not None and not (math.isfinite(host_w) and host_w >= 0):
        mistakes.append(f"power of the host is {host_w} W; it must be zero or more (--host-power 350)")
    if pue is not None and not (math.isfinite(pue) and pue >= 1):
        mistakes.append(
            f"PUE is {pue}; the building draws at least what its machines draw, so it is 1 or more (--pue 1.1)"
        )
    if mistakes:
        raise PlanError("\n".join(mistakes))


@cache
def _rows() -> Mapping[str, Any]:
    text = resources.files("torchledger.planner").joinpath("data/energy.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
