"""`count --trace`: the real module's step run on no memory. The only part of `count` that loads torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchledger.cli.asked import Asked
from torchledger.cli.output import note
from torchledger.cli.prediction import disagreement, look
from torchledger.cli.step import answer_step
from torchledger.formula import count
from torchledger.ledger import Convention
from torchledger.units import format_bytes
from torchledger.view.memory import live_table
from torchledger.view.screen import Lines


def answer_by_looking(asked: Asked, convention: Convention, options: Mapping[str, Any]) -> None:
    """Show the traced ledger, the peak with what lives there, and whether the formulas agree."""
    note(f"running {asked.model.name} on no memory ...")
    trace = look(asked.model, asked.recipe)
    ledger = trace.ledger.folded().under(convention)
    peak = trace.peak()
    inside = f", {format_bytes(peak.internal_bytes)} of them inside a kernel" if peak.internal_bytes else ""
    apart = disagreement(count(asked.model, asked.recipe), trace)
    more = (
        live_table(peak, limit=12),
        Lines((f"peak of the tensors: {format_bytes(peak.peak_bytes)}{inside}",), mark="note"),
        Lines(apart or ("they agree on every contraction, to the last FLOP",), "formula and trace"),
    )
    answer_step(asked, ledger, options, how="by looking at the real step", memory=peak.by_part(), more=more)
