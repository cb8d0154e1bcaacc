"""`chipset_of`: what a chip sustains in a training step, from its data sheet, what others measured, and constants."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any

from torchledger.machine import Chip
from torchledger.planner.constants import Constants
from torchledger.planner.efficiency import Chipset
from torchledger.planner.errors import PlanError

#: Formats of a line and the catalog's word for the rate that they run at.
_RATES = {
    "fp32": "fp32",
    "tf32": "tf32",
    "fp16": "fp16",
    "bf16": "bf16",
    "fp8": "fp8",
    "mxfp8": "fp8",
    "nvfp4": "fp4",
    "fp4": "fp4",
}


def chipset_of(chip: Chip, constants: Constants, attention_kernel: str) -> Chipset:
    """The chip's rates.

    Args:
        chip: which one.
        constants: what of its rates a training step sustains.
        attention_kernel: a row of `data/attention.toml`.

    Raises:
        PlanError: the chip's memory bandwidth is unknown.
    """
    if chip.memory_bandwidth is None:
        raise PlanError(f"the memory bandwidth of {chip.name} is not known; give it in a machine file")
    return Chipset(
        flops_per_s=tuple((name, rate) for name in _RATES if (rate := _sustained(chip, name, constants)) is not None),
        attention_flops_per_s=attention_flops_per_s(chip, constants, attention_kernel),
        attention_small_heads=_small_heads(attention_kernel),
        attention_ramp=float(_attention()["ramp"]),
        bytes_per_s=chip.memory_bandwidth * constants.memory_share,
        num_multiprocessors=num_multiprocessors(chip),
        kernel_s=constants.kernel_s,
        unaligned_share=constants.unaligned_share,
    )


def _sustained(chip: Chip, number_format: str, constants: Constants) -> float | None:
    peak = next((each for each in chip.peaks if each.number_format == _RATES[number_format]), None)
    if peak is None:
        return None
    measured = peak.measured_flops_per_s
    if measured is None:  # the share of the best measured format of the chip, else of chips like it
        shares = [
            each.measured_flops_per_s / each.dense_flops_per_s for each in chip.peaks if each.measured_flops_per_s
        ]
        others = _facts()["unmeasured"]
        share = max(shares) if shares else others.get(chip.architecture.lower(), others["all"])
        measured = peak.dense_flops_per_s * share
    return float(measured * constants.matmul_share)


def attention_flops_per_s(chip: Chip, constants: Constants, kernel: str) -> tuple[float, float]:
    """Forward and backward rate of a fused attention kernel on long sequences.

    Raises:
        PlanError: the kernel is not known, or the chip has no 16-bit peak.
    """
    rows = _attention()
    if kernel not in rows or not isinstance(rows[kernel], dict):
        known = ", ".join(name for name, row in rows.items() if isinstance(row, dict))
        raise PlanError(f"attention kernel {kernel!r} is not known; known are {known}")
    row = rows[kernel].get(chip.architecture.lower(), rows[kernel]["all"])
    peak = next((each for each in chip.peaks if each.number_format in {"bf16", "fp16"}), chip.peaks[0])
    rate = peak.dense_flops_per_s * constants.matmul_share * constants.attention_factor
    return rate * row["forward"], rate * row["backward"]


def num_multiprocessors(chip: Chip) -> int:
    """Units that a matrix product's tiles are spread over; a chip of which they are unknown counts as smooth (one)."""
    rows = _facts()["multiprocessors"]
    return int(rows.get(chip.key, rows.get(chip.family, 1)))


def _small_heads(kernel: str) -> tuple[float, float]:
    row = _attention()[kernel]["small_heads"]
    return row["forward"], row["backward"]


@cache
def _attention() -> dict[str, Any]:
    text = resources.files("torchledger.planner").joinpath("data/attention.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def _facts() -> dict[str, dict[str, float]]:
    text = resources.files("torchledger.planner").joinpath("data/multiprocessors.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
