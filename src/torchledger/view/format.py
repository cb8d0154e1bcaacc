"""Number formats on the screen: bits drawn, what a format can represent, what becomes of one number in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchledger.formats import NumberFormat, ValueRow
from torchledger.units import format_bytes, format_number, group_digits
from torchledger.view.screen import Block, Facts, Lines, Row, Table


def value_screen(text: str, rows: Sequence[ValueRow]) -> tuple[Block, ...]:
    """What becomes of a number in each format."""
    shown = (
        Row(
            (
                row.format,
                f"{row.value:.9g}",
                row.kind,
                "" if row.relative_error is None else _error(row.relative_error),
                row.bits,
                row.reason,
            ),
            mark="bad" if row.overflow or (row.kind == "zero" and row.inexact) else "",
        )
        for row in rows
    )
    columns = ("<format", "value held", "<kind", "relative error", "<bits: sign exponent mantissa", "<why")
    return (Table(columns, tuple(shown), f"{text} in every format"),)


def format_screen(row: Mapping[str, Any]) -> tuple[Block, ...]:
    """One format: its bits drawn, its range and step, where it is defined."""
    e, m = row["exponent_bits"], row["mantissa_bits"]
    cells = f"│s│{'e' * e}│{'m' * m}│"
    nan = {"exponent": "all exponent bits and some mantissa bit", "all_ones": "all bits set"}[row["nan"]]
    special = f"infinity: {'yes' if row['has_infinity'] else 'no'}; NaN: {nan}"
    facts = (
        ("bits", f"{row['bits']} = 1 sign + {e} exponent + {m} mantissa, bias {row['bias']}"),
        ("memory", f"{row['bytes_per_element']} bytes an element"),
        ("largest", f"{row['max']:.9g}"),
        ("smallest normal", f"{row['smallest_normal']:.9g}"),
        ("smallest subnormal", f"{row['smallest_subnormal']:.9g}"),
        ("epsilon (step at 1)", f"{row['epsilon']:.9g} = 2^-{m}"),
        ("decimal digits", f"{row['decimal_digits']} always kept, {row['round_trip_digits']} tell all apart"),
        ("counts in ones to", group_digits(row["largest_counting_integer"])),
        ("special values", special),
        ("beyond the largest", _beyond(row)),
        ("also called", ", ".join(row["aliases"])),
        ("used for", row["use"]),
        ("source", row["source"]),
    )
    return (
        Lines((f"{row['name']}: {row['title']}",), mark="headline"),
        Lines((cells,), mark="code"),
        Facts(facts),
    )


def formats_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """All formats, one a row."""
    columns = ("<format", "bits", "exponent", "mantissa", "bytes", "largest", "smallest normal", "smallest", "epsilon")
    shown = (
        Row(
            (
                row["name"],
                str(row["bits"]),
                str(row["exponent_bits"]),
                str(row["mantissa_bits"]),
                str(row["bytes_per_element"]),
                *(f"{row[key]:.4g}" for key in ("max", "smallest_normal", "smallest_subnormal", "epsilon")),
            )
        )
        for row in rows
    )
    return Table(columns, tuple(shown), "number formats")


def tensor_screen(shape: Sequence[int], sizes: Mapping[str, int], formats: Sequence[NumberFormat]) -> tuple[Block, ...]:
    """Bytes of a dense tensor in each format."""
    elements = 1
    for size in shape:
        elements *= size
    written = " × ".join(group_digits(size) for size in shape) or "scalar"
    rows = (
        Row((fmt.name, str(fmt.bytes_per_element), group_digits(sizes[fmt.name]), format_bytes(sizes[fmt.name])))
        for fmt in formats
    )
    columns = ("<format", "bytes an element", "bytes", "in all")
    return (Table(columns, tuple(rows), f"a tensor of {written} = {group_digits(elements)} elements"),)


def _beyond(row: Mapping[str, Any]) -> str:
    cast = "a cast cuts to the largest" if row["cast_saturates"] else "a cast becomes infinity"
    return f"{cast}; {row['cast_note']}" if row["cast_note"] else cast


def _error(relative: float) -> str:
    return "0" if relative == 0 else f"{format_number(100 * relative, 2)} %"
