"""Number formats on the screen: bits drawn, what a format can represent, what becomes of one number in each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torchledger.formats import Format, ValueRow, every
from torchledger.units import format_bytes, format_number, group_digits
from torchledger.view.screen import Block, Facts, Lines, Row, Table

_NAN = {
    "exponent": "all exponent bits and some mantissa bit",
    "all_ones": "all bits set",
    "none": "no",
}


def value_screen(text: str, rows: Sequence[ValueRow]) -> tuple[Block, ...]:
    """What becomes of a number in each format."""
    shown = (
        Row(
            (
                row.format,
                "none" if row.value is None else f"{row.value:.9g}",
                row.kind,
                "" if row.relative_error is None else _error(row.relative_error),
                row.bits,
                row.reason,
            ),
            mark="bad" if row.overflow or row.value is None or (row.kind == "zero" and row.inexact) else "",
        )
        for row in rows
    )
    columns = ("<format", "value held", "<kind", "relative error", "<bits: sign exponent mantissa", "<why")
    where = "every format" if len(rows) == len(every()) else ", ".join(row.format for row in rows)
    return (Table(columns, tuple(shown), f"{text} in {where}"),)


def drawn_bits(pattern: str, layout: str) -> tuple[str, ...]:
    r"""A pattern in boxes, with the letters of its fields below: s sign, e exponent, m mantissa, i integer.

    >>> print(*drawn_bits("0 11 1", "s ee m"), sep="\n")
    │0│11│1│
     s ee m
    """
    fields = pattern.split(" · ")
    return (
        " · ".join(f"│{field.replace(' ', '│')}│" for field in fields),
        " · ".join(f" {f} " for f in layout.split(" · ")).rstrip(),
    )


def format_screen(row: Mapping[str, Any]) -> tuple[Block, ...]:
    """One format: its bits drawn, its range and step, where it is defined."""
    facts = {"float": _float_facts, "integer": _integer_facts, "block": _block_facts}[row["family"]](row)
    about = (("also called", ", ".join(row["aliases"])), ("used for", row["use"]), ("source", row["source"]))
    return (
        Lines((f"{row['name']}: {row['title']}",), mark="headline"),
        Lines((format_cells(row),), mark="code"),
        Facts((*facts, *about)),
    )


def format_cells(row: Mapping[str, Any]) -> str:
    """The fields of a format in boxes."""
    cells = f"│{row['layout'].replace(' ', '│')}│"
    if row["family"] != "block":
        return cells
    scale = f"│{row['scale_layout'].replace(' ', '│')}│"
    tensor = f"tensor: {row['tensor_scale']}   " if row["tensor_scale"] else ""
    return f"{tensor}scale {scale} × {row['block_size']} of {cells}"


def _float_facts(row: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    e, m, signs = row["exponent_bits"], row["mantissa_bits"], row["sign_bits"]
    yield "bits", f"{row['bits']} = {signs} sign + {e} exponent + {m} mantissa, bias {row['bias']}"
    yield "memory", _bytes(row["bytes_per_element"])
    yield "range", f"[{row['min']:.9g}, {row['max']:.9g}]"
    yield "largest", f"{row['max']:.9g}"
    yield "smallest normal", f"{row['smallest_normal']:.9g}"
    subnormal = row["smallest_subnormal"]
    yield "smallest subnormal", "none: neither subnormals nor zero" if subnormal is None else f"{subnormal:.9g}"
    yield "epsilon (step at 1)", f"{row['epsilon']:.9g} = 2^-{m}" if m else "1 = 2^0"
    yield "decimal digits", f"{row['decimal_digits']} always kept, {row['round_trip_digits']} tell all apart"
    yield "counts in ones to", group_digits(row["largest_counting_integer"])
    yield "special values", f"infinity: {'yes' if row['has_infinity'] else 'no'}; NaN: {_NAN[row['nan']]}"
    yield "beyond the largest", _beyond(row)


def _integer_facts(row: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    yield "bits", f"{row['bits']} = 1 sign + {row['bits'] - 1}, two's complement"
    yield "memory", _bytes(row["bytes_per_element"])
    yield "range", f"[{row['min']:.9g}, {row['max']:.9g}]"
    yield "step", f"{row['step']:.9g} everywhere"
    if row["is_symmetric"]:
        yield "most negative pattern", "left unused, so that -x is held wherever x is"
    yield "special values", "infinity: no; NaN: no"
    yield "beyond the largest", row["cast_note"]


def _block_facts(row: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    tensor = f", and one {row['tensor_scale']} for the tensor" if row["tensor_scale"] else ""
    yield "elements", f"{row['element']}, up to ±{row['element_max']:.9g}"
    yield "scale", f"{row['scale']} for {row['block_size']} elements{tensor}"
    bits, size = row["bits"], row["block_size"]
    yield (
        "memory",
        f"{bits} + 8/{size} = {row['bits_per_element']:.9g} bits = {row['bytes_per_element']:.9g} bytes an element",
    )
    yield "largest", f"{row['max']:.9g}, under the largest scale"
    yield "smallest", f"{row['smallest']:.9g}, under the smallest scale"


def formats_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """All floating-point formats, one a row."""
    columns = ("<format", "bits", "exponent", "mantissa", "bytes", "largest", "smallest normal", "smallest", "epsilon")
    shown = (
        Row(
            (
                row["name"],
                str(row["bits"]),
                str(row["exponent_bits"]),
                str(row["mantissa_bits"]),
                str(row["bytes_per_element"]),
                f"{row['max']:.4g}",
                f"{row['smallest_normal']:.4g}",
                f"{row['smallest_normal' if row['smallest_subnormal'] is None else 'smallest_subnormal']:.4g}",
                f"{row['epsilon']:.4g}",
            )
        )
        for row in rows
        if row["family"] == "float"
    )
    return Table(columns, tuple(shown), "number formats")


def formats_screen(rows: Sequence[Mapping[str, Any]]) -> tuple[Block, ...]:
    """All formats: floating ones, integers, blocks."""
    screen: list[Block] = []
    if any(row["family"] == "float" for row in rows):
        screen.append(formats_table(rows))
    integers = tuple(
        Row(
            (
                row["name"],
                str(row["bits"]),
                str(row["bytes_per_element"]),
                *(f"{row[k]:.9g}" for k in ("min", "max", "step")),
            )
        )
        for row in rows
        if row["family"] == "integer"
    )
    if integers:
        screen.append(Table(("<format", "bits", "bytes", "smallest", "largest", "step"), integers, "integers"))
    blocks = tuple(
        Row(
            (
                row["name"],
                row["element"],
                str(row["block_size"]),
                row["scale"],
                row["tensor_scale"] or "",
                f"{row['bits_per_element']:.9g}",
                f"{row['bytes_per_element']:.9g}",
            )
        )
        for row in rows
        if row["family"] == "block"
    )
    if blocks:
        columns = ("<format", "<elements", "block", "<scale", "<of the tensor", "bits with scale", "bytes with scale")
        screen.append(Table(columns, blocks, "blocks that share a scale"))
    return tuple(screen)


def tensor_screen(shape: Sequence[int], sizes: Mapping[str, int], formats: Sequence[Format]) -> tuple[Block, ...]:
    """Bytes of a dense tensor in each format, scales included."""
    elements = 1
    for size in shape:
        elements *= size
    written = " × ".join(map(group_digits, shape)) + (f" = {group_digits(elements)}" if len(shape) > 1 else "")
    title = f"a tensor of {written} element{'' if elements == 1 else 's'}" if shape else "a scalar"
    rows = (
        Row(
            (
                fmt.name,
                f"{fmt.bytes_per_element:.9g}",
                group_digits(sizes[fmt.name]),
                format_number(sizes[fmt.name] / 2**20, 5),
                format_bytes(sizes[fmt.name]),
            )
        )
        for fmt in formats
    )
    columns = ("<format", "bytes an element", "bytes", "MiB", "in all")
    return (Table(columns, tuple(rows), title),)


def _beyond(row: Mapping[str, Any]) -> str:
    if row["cast_saturates"]:
        cast = "a cast cuts to the largest"
    else:
        cast = "a cast becomes infinity" if row["has_infinity"] else "a cast becomes NaN"
    return f"{cast}; {row['cast_note']}" if row["cast_note"] else cast


def _bytes(size: float) -> str:
    return f"{size:.9g} byte{'s' if size > 1 else ''} an element"


def _error(relative: float) -> str:
    return "0" if relative == 0 else f"{format_number(100 * relative, 2)} %"
