"""What the napkin assumes where nothing is given, read from `data/mfu.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class AssumedMfu:
    """The MFU of a run of which none is known.

    Attributes:
        mfu: a share of the dense peak.
        low, high: the middle half of what was published.
        what: what the figure is, in words.
        source: where the published figures stand.
    """

    mfu: float
    low: float
    high: float
    what: str
    source: str

    @property
    def text(self) -> str:
        """The assumption as a line for the answer."""
        return f"MFU {self.mfu} is assumed ({self.what})"


def assumed_mfu() -> AssumedMfu:
    """The MFU to assume, with its reason."""
    text = resources.files("torchledger.planner").joinpath("data/mfu.toml").read_text(encoding="utf-8")
    row = tomllib.loads(text)["assumed"]
    return AssumedMfu(row["mfu"], row["low"], row["high"], row["what"], row["source"])
