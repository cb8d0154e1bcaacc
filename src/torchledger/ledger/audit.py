"""`AuditRecord`: what an audit of one model found, as plain data that a viewer draws and JSON holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from torchledger.ledger import display
from torchledger.ledger.finding import Finding

AuditKind: TypeAlias = Literal["precision", "init", "copies", "determinism"]


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """What an audit found. Plain data throughout: numbers, texts, and mappings and tuples of them.

    Attributes:
        audit: which audit.
        subject: what was looked at: a model's name, a run folder, a file and function.
        findings: worst first; an audit of a sound model has none above `note`.
        facts: single figures, by name with units (`loss`, `step_s`, `copied_bytes`).
        tables: rows by the table's name; each audit says in its docstring which columns they have.
        overhead: what looking cost, by name with units: `plain_step_s`, `audited_step_s`, `extra_bytes`.
        assumptions: what was assumed or decided without being asked.
    """

    audit: AuditKind
    subject: str
    findings: tuple[Finding, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    overhead: Mapping[str, float] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found that harms or breaks a run; notes do not count."""
        return all(each.severity == "note" for each in self.findings)

    def __str__(self) -> str:
        """The screen of the audit, where `view` has told how it looks."""
        drawn = display.render(self, "text")
        return repr(self) if drawn is None else drawn

    def _repr_html_(self) -> str | None:
        """What a notebook shows."""
        return display.render(self, "html")
