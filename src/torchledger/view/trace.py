"""Tables of a traced step: what its FLOPs are for, what bounds it on a chip, what other recipes would take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchledger.ledger import HARDWARE_FLOPS, MODEL_FLOPS, Convention, Coverage, Ledger
from torchledger.machine import Chip
from torchledger.ops.roofline import balance, intensity, roof
from torchledger.units import UNKNOWN, format_bytes, format_duration, format_flops, format_number, group_digits
from torchledger.view.screen import Lines, Row, Table

_EXACT = Convention(attention="exact")


def _flops(amount: Any) -> str:
    return UNKNOWN if amount is None else format_flops(amount)


def purpose_table(ledger: Ledger) -> Table:
    """The three numbers by what the work is for: model, executed and exact FLOPs."""
    conventions = (MODEL_FLOPS, HARDWARE_FLOPS, _EXACT)
    parts = [
        (purpose, [part.under(convention).flops for convention in conventions])
        for purpose, part in ledger.by_purpose().items()
    ]
    rows = [Row((purpose, *map(_flops, flops))) for purpose, flops in parts if any(flops) or None in flops]
    rows.append(Row(("total", *(_flops(ledger.under(each).flops) for each in conventions)), mark="total"))
    note = "model: no recompute, attention in full; executed: what runs; exact: attention pair by pair"
    return Table(("<for", "model", "executed", "exact"), tuple(rows), "FLOPs of a step", note)


def coverage_lines(coverage: Coverage) -> Lines:
    """Which share of the operations was counted, and what was not."""
    known = f"{group_digits(coverage.num_counted)} operations counted by a rule, {coverage.num_free} known to be free"
    lines = [known]
    for each in coverage.unknown:
        most = "at most " + format_flops(each.at_most_flops) if each.at_most_flops is not None else "no bound known"
        where = ", ".join(f"`{module}`" for module in each.modules[:3] if module)
        lines.append(f"no rule for {each.op}, {each.times} times, {most}" + (f", in {where}" if where else ""))
    return Lines(tuple(lines), "coverage", "warning" if coverage.unknown else "note")


def roofline_table(ledger: Ledger, chip: Chip, *, limit: int = 12) -> Table:
    """The lines that take longest on a chip by its data sheet, and what sets their time: arithmetic or memory."""
    timed = [(line, roof(line, chip)) for line in ledger]
    known = [(line, under, under.seconds) for line, under in timed if under.seconds is not None]
    known.sort(key=lambda item: -item[2])
    total = sum(seconds for *_, seconds in known)
    rows = [
        Row(
            (
                line.module or "(step)",
                line.op,
                line.phase,
                line.number_format,
                format_number(found) if (found := intensity(line.work)) is not None else "",
                format_duration(seconds),
                under.bound,
            )
        )
        for line, under, seconds in known[:limit]
    ]
    whole = intensity(ledger.total)
    by_memory = sum(seconds for _, under, seconds in known if under.bound == "memory")
    rows.append(
        Row(
            ("total", "", "", "", "" if whole is None else format_number(whole), format_duration(total), ""),
            mark="total",
        )
    )
    shares = f"{format_duration(by_memory)} bound by memory, {format_duration(total - by_memory)} by compute"
    formats = dict.fromkeys(line.number_format for line in ledger if line.kind == "matmul")
    turns = [f"{name} {format_number(turn)}" for name in formats if (turn := _balance(chip, name)) is not None]
    left = len(timed) - len(known)
    note = f"{shares}; compute sets the time above (FLOPs a byte): {', '.join(turns) or UNKNOWN}"
    note += f"; no time is known for {left} lines" if left else ""
    columns = ("<module", "<op", "<phase", "<format", "FLOPs a byte", "at least", "<bound by")
    return Table(columns, tuple(rows), f"roofline on {chip.name}", note, optional=("format", "phase"))


def what_if_table(outcomes: Sequence[Mapping[str, Any]]) -> Table:
    """What other recipes take, one a row: the first is the step as it is."""
    has_device = any(each["reserved_bytes"] is not None for each in outcomes)
    has_host = any(each["host_bytes"] for each in outcomes)
    columns = ["<what if", "peak"]
    columns += ["reserved"] if has_device else []
    columns += ["kept", "executed FLOPs", "against"]
    columns += ["on the host"] if has_host else []
    rows = []
    for each in outcomes:
        cells = [each["name"], format_bytes(each["peak_bytes"])]
        cells += [format_bytes(each["reserved_bytes"])] if has_device else []
        ratio = _ratio(each["executed_flops"], outcomes[0]["executed_flops"])
        cells += [format_bytes(each["kept_bytes"]), _flops(each["executed_flops"]), ratio]
        cells += [format_bytes(each["host_bytes"])] if has_host else []
        rows.append(Row(tuple(cells)))
    note = "peak: tensors; kept: by the forward pass for the backward pass; against: FLOPs over those of the first row"
    return Table(tuple(columns), tuple(rows), "what if", note)


def _ratio(flops: Any, plain: Any) -> str:
    return UNKNOWN if flops is None or not plain else f"{flops / plain:.3f}×"


def _balance(chip: Chip, number_format: str) -> float | None:
    try:
        return balance(chip, number_format)
    except ValueError:  # a format that the chip has no peak for
        return None
