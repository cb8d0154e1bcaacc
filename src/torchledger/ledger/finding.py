"""`Finding`: what an audit found, where, why it matters and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of an audit.

    Attributes:
        audit: which audit (`precision`, `init`, `copies`, `determinism`, `data`).
        severity: `error` breaks the run, `warning` harms it, `note` is worth knowing.
        place: module path, parameter name or file and line.
        message: what was found, with its number.
        remedy: what to do about it.
        evidence: the figures it stands on, by name with units.
    """

    audit: str
    severity: Literal["error", "warning", "note"]
    place: str
    message: str
    remedy: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)
