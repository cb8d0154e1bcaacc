"""`RunRecord`: the contents of a run folder as torch-free data, so that every viewer can draw it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchledger.ledger.difference import Difference
from torchledger.ledger.finding import Finding
from torchledger.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One training run: what was asked, predicted, measured.

    Attributes:
        name: the run's name.
        config: the resolved configuration, as written to `config.toml`.
        environment: versions, machine, threads, seeds (`environment.json`).
        prediction: figures told before the run, keys with units.
        metrics: rows of `metrics.jsonl` in order (`step`, `loss`, `tokens_per_s`, `mfu`, ...).
        differences: the closing table.
        ledger: the predicted ledger of one step.
        memory: the predicted peak by part and the curve, keys with units.
        samples: texts that the model wrote.
        findings: what was noticed on the way.
    """

    name: str
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    prediction: Mapping[str, Any]
    metrics: tuple[Mapping[str, Any], ...] = ()
    differences: tuple[Difference, ...] = ()
    ledger: Ledger | None = None
    memory: Mapping[str, Any] = field(default_factory=dict)
    samples: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
