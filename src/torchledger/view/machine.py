"""Chips on the screen: everything the catalog knows of one, or one row for each."""

from __future__ import annotations

from collections.abc import Sequence

from torchledger.machine import Chip, Fact
from torchledger.units import (
    UNKNOWN,
    format_bytes,
    format_bytes_decimal,
    format_flops_per_s,
    format_number,
    format_rate,
)
from torchledger.view.screen import Block, Facts, Lines, Row, Table


def chip_screen(chip: Chip, facts: Sequence[Fact]) -> tuple[Block, ...]:
    """Everything known of a chip; a sparse peak stands beside the dense one and is never the denominator."""
    rows = tuple(Row((fact.what, show_fact(fact), _sparse(fact), fact.note)) for fact in facts)
    blocks: list[Block] = [Table(("<fact", "<value", "<with sparsity", "<note"), rows, chip.name)]
    if chip.sparsity is not None:
        blocks.append(Lines((chip.sparsity.reason,), mark="note"))
    return tuple(blocks)


def here_screen(name: str, told: Sequence[tuple[str, str]], chip: Chip | None) -> tuple[Block, ...]:
    """A device at hand: what the system tells of it, and the dense peaks of its row in the catalog, if it has one."""
    if chip is None:
        row: Block = Lines(
            ("no row of the catalog has this name: a measurement is the only peak there is",), mark="note"
        )
    else:
        peaks = tuple(
            (f"{peak.number_format} peak, dense", _show(peak.dense_flops_per_s, "FLOP/s")) for peak in chip.peaks
        )
        row = Facts((("catalog", f"{chip.name} ({chip.key}), confidence {chip.confidence}"), *peaks))
    return (Lines((name,), mark="headline"), Facts(tuple(told)), row)


def chips_table(chips: Sequence[Chip]) -> Table:
    """One row a chip: its dense peaks, memory, bandwidth and confidence."""
    columns = ("<name", "<key", "bf16 dense", "fp8 dense", "fp32", "memory", "bandwidth", "year", "<confidence")
    rows = tuple(_chip_row(chip) for chip in chips)
    optional = ("confidence", "year", "fp32", "bandwidth", "fp8 dense")
    return Table(columns, rows, "known machines (dense peaks)", optional=optional)


def show_fact(fact: Fact) -> str:
    """A fact's value as text."""
    return _show(fact.value, fact.unit, nominal="nominal" in fact.what)


def _sparse(fact: Fact) -> str:
    return "" if fact.sparse is None else _show(fact.sparse, fact.unit)


def _show(value: float | str | None, unit: str, *, nominal: bool = False) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, str):
        return value
    match unit:
        case "FLOP/s" | "op/s":
            # always in tera, so that a dense and a sparse figure are read against each other
            return f"{format_number(value / 1e12, 4)} T{unit}"
        case "B":
            return format_bytes_decimal(value) if nominal else format_bytes(value)
        case "B/s":
            return format_rate(value)
        case "":
            return str(value)
    return f"{format_number(value, 4)} {unit}"


def _chip_row(chip: Chip) -> Row:
    peaks = {peak.number_format: peak.dense_flops_per_s for peak in chip.peaks}
    return Row(
        (
            chip.name,
            chip.key,
            *(_peak(chip, peaks, number_format) for number_format in ("bf16", "fp8", "fp32")),
            format_bytes_decimal(chip.memory_bytes_nominal),
            format_rate(chip.memory_bandwidth),
            str(chip.year or UNKNOWN),
            chip.confidence,
        )
    )


def _peak(chip: Chip, peaks: dict[str, float], number_format: str) -> str:
    if number_format in chip.lacks:
        return "none"
    return format_flops_per_s(peaks.get(number_format))
