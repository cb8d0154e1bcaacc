"""What the napkin assumes where no MFU is given: that of published runs, by chip and format (`data/mfu.toml`)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from torchledger.machine import Chip

#: Formats whose runs stand in where a format has none: FP16 has BF16's peak, MXFP8 has FP8's.
_LIKE: Mapping[str, str] = {"fp16": "bf16", "mxfp8": "fp8"}


@dataclass(frozen=True, slots=True)
class AssumedMfu:
    """The MFU of a run of which none is known, by 6·parameters·tokens/s.

    Attributes:
        mfu: a share of the dense peak, the median of what was published.
        low, high: the middle half of it.
        num_runs: published runs.
        of: whose runs they are.
        source: where the published figures stand.
    """

    mfu: float
    low: float
    high: float
    num_runs: int
    of: str
    source: str

    @property
    def text(self) -> str:
        """The assumption as a line for the answer."""
        return (
            f"MFU {self.mfu} is assumed: the median of {self.num_runs} published runs {self.of}, middle half"
            f" {self.low} to {self.high}, by 6·parameters·tokens/s over the dense peak ({self.source})"
        )


def assumed_mfu(chip: Chip, number_format: str) -> AssumedMfu:
    """The MFU to assume: of the chip in the format; else of the format on any chip; else of all runs.

    >>> from torchledger.machine import get
    >>> assumed_mfu(get("h100"), "bf16").of, assumed_mfu(get("mi300x"), "bf16").of
    ('on H100 SXM in bf16', 'in bf16 on other chips')
    """
    tables = _tables()
    of_chip = tables["chip"].get(chip.key, {})
    for name in (number_format, _LIKE.get(number_format, number_format)):
        if name in of_chip:
            return _read(of_chip[name], f"on {chip.name} in {name}")
    for name in (number_format, _LIKE.get(number_format, number_format)):
        if name in tables["format"]:
            return _read(tables["format"][name], f"in {name} on other chips")
    return _read(tables["all"], f"on other chips and in other formats (none in {number_format} is known)")


def _read(row: Mapping[str, Any], of: str) -> AssumedMfu:
    return AssumedMfu(row["mfu"], row["low"], row["high"], row["num_runs"], of, row["source"])


@cache
def _tables() -> Mapping[str, Any]:
    text = resources.files("torchledger.planner").joinpath("data/mfu.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
