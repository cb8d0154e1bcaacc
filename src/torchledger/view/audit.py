"""The screen of an audit: the MFU under every convention, which give the printed figure, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence

from torchledger.planner.claim import Audit, Claim, Explanation, Row
from torchledger.planner.printed import Printed
from torchledger.units import format_count, format_flops, format_flops_per_s, format_percent
from torchledger.view.screen import Block, Lines, Table, assumed
from torchledger.view.screen import Row as Shown


def audit_screen(model: str, chips: str, found: Audit, claim: Claim, assumptions: Sequence[str]) -> tuple[Block, ...]:
    """What an audit found.

    Args:
        model: its name.
        chips: their number and name.
        found: the audit.
        claim: what was audited.
        assumptions: what it rests on.
    """
    return (
        Lines((headline(model, chips, found, claim),), mark="headline"),
        *(
            [Lines(found.findings, "from the figures alone", "" if found.is_possible else "warning")]
            if found.findings
            else []
        ),
        *_explained(found.explanations, claim),
        _table(found.rows, f"model FLOPs over {found.peak.what}, {format_flops_per_s(found.peak.flops_per_s)}"),
        *([_table(found.hardware, "hardware FLOPs, recompute in")] if claim.hfu is not None else []),
        *assumed(assumptions),
    )


def headline(model: str, chips: str, found: Audit, claim: Claim) -> str:
    """The answer in one sentence: who gives the printed figure, or between what the conventions lie."""
    shares = [row.utilisation for row in found.rows if row.utilisation is not None]
    printed = claim.mfu or claim.hfu
    if not shares:
        assert claim.flops_per_s is not None
        share = claim.flops_per_s.value / found.peak.flops_per_s
        right = [each for each in found.explanations if each.num_changes == 0]
        if printed is not None and right:
            whose = "the printed TFLOP/s" if printed.text else "its FLOP/s"
            return (
                f"{model} on {chips}: {_show(printed)} is what {whose} are of {right[0].peak.what},"
                " whatever convention they were counted by"
            )
        return (
            f"{model} on {chips}: {format_percent(share)} of the peak, whatever convention its FLOP/s were counted by"
        )
    spread = f"{format_percent(min(shares))} to {format_percent(max(shares))} by convention"
    if printed is None:
        return f"{model} on {chips}: MFU {spread}"
    plain = [each for each in found.explanations if each.num_changes == 0]
    if plain:
        names = ", ".join(plain[0].conventions)
        return (
            f"{model} on {chips}: {_show(printed)} is what {names} give{'s' if len(plain[0].conventions) == 1 else ''}"
        )
    why = "only by another peak, model or recompute" if found.explanations else "by no convention that is known here"
    return f"{model} on {chips}: {_show(printed)} is reproduced {why}; MFU is {spread}"


def _explained(explanations: Sequence[Explanation], claim: Claim) -> tuple[Block, ...]:
    if claim.mfu is None and claim.hfu is None:
        return ()
    if not explanations:
        told = "no convention, peak, recompute or usual mistake gives it; was it this speed, model and sequence length?"
        if claim.tokens_per_s is None:
            told = "the printed TFLOP/s over no peak that is known here give it; was it this speed and this chip?"
        return (Lines((told,), "what gives the printed figure"),)
    return (Lines(tuple(each.text for each in explanations), "what gives the printed figure"),)


def _table(rows: Sequence[Row], title: str) -> Table:
    by_rate = any(row.utilisation is not None for row in rows)
    shown = []
    for row in rows:
        last = (
            (format_flops_per_s(row.flops_per_s), format_percent(row.utilisation))
            if by_rate
            else (format_count(row.tokens_per_s),)
        )
        cells = (row.reading.name, row.reading.formula, format_flops(row.reading.flops_per_token), *last)
        shown.append(Shown((*cells, ", ".join(row.reproduces)), mark="good" if row.reproduces else ""))
    measured = ("FLOP/s a chip", "MFU") if by_rate else ("tokens/s a chip",)
    return Table(
        ("<who", "<formula", "FLOPs a token", *measured, "<reproduces"), tuple(shown), title, optional=("formula",)
    )


def _show(printed: Printed) -> str:
    return printed.text or format_percent(printed.value)
