"""Ledgers out and in: plain rows, versioned JSON, CSV. Full integers, names with units, unknown as null or empty."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, get_args

from torchledger.ledger.convention import Convention
from torchledger.ledger.ledger import Ledger
from torchledger.ledger.line import GradientOf, Kind, Line, Origin, Phase
from torchledger.ledger.work import WORK_FIELDS, Amount, Work

SCHEMA = "torchledger.ledger/1"

_PLACE_FIELDS = ("module", "op", "kind", "phase", "gradient_of", "number_format", "times", "origin", "source")
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "kind": get_args(Kind),
    "phase": get_args(Phase),
    "gradient_of": get_args(GradientOf),
    "origin": get_args(Origin),
}

_CONVENTION_CHOICES: Mapping[str, tuple[Any, ...]] = {
    "operations": ("contractions", "all"),
    "attention": ("full", "exact", "executed"),
    "embedding": (False, True),
    "recompute": (False, True),
}


class LedgerFormatError(ValueError):
    """A file is not a ledger, or a ledger of a schema that this version does not read."""


def to_rows(ledger: Ledger) -> list[dict[str, Any]]:
    """One flat dict a line: place, work of one time, `times` and the shape as `b=1 m=2`."""
    return [
        {
            **{name: getattr(line, name) for name in _PLACE_FIELDS},
            "shape": " ".join(f"{name}={size}" for name, size in line.shape),
            **{name: getattr(line.work, name) for name in WORK_FIELDS},
        }
        for line in ledger.lines
    ]


def to_dict(ledger: Ledger) -> dict[str, Any]:
    """The ledger as JSON-ready data with its schema version."""
    return {
        "schema": SCHEMA,
        "convention": asdict(ledger.convention),
        "assumptions": list(ledger.assumptions),
        "is_complete": ledger.is_complete,
        "lines": to_rows(ledger),
    }


def to_json(ledger: Ledger, *, indent: int | None = None) -> str:
    """The ledger as JSON text."""
    return json.dumps(to_dict(ledger), indent=indent)


def to_csv(ledger: Ledger) -> str:
    """The lines as CSV with a header; the first row after it starts with `#` and holds schema and convention."""
    text = io.StringIO()
    head = {"schema": SCHEMA, "convention": asdict(ledger.convention), "assumptions": list(ledger.assumptions)}
    text.write("# " + json.dumps(head) + "\n")
    writer = csv.DictWriter(text, [*_PLACE_FIELDS, "shape", *WORK_FIELDS], lineterminator="\n")
    writer.writeheader()
    writer.writerows(to_rows(ledger))
    return text.getvalue()


def from_json(text: str) -> Ledger:
    """Read what `to_json` wrote.

    Raises:
        LedgerFormatError: not JSON, not a ledger, or another schema; the message says which.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise LedgerFormatError(f"not JSON: {error}") from error
    if not isinstance(data, dict) or "lines" not in data:
        raise LedgerFormatError("not a ledger: a JSON object with `schema` and `lines` is expected")
    return _ledger(data, data["lines"])


def from_csv(text: str) -> Ledger:
    """Read what `to_csv` wrote.

    Raises:
        LedgerFormatError: no `#` head line, another schema, or a row that is not a line.
    """
    first, _, rest = text.partition("\n")
    if not first.startswith("# "):
        raise LedgerFormatError("not a ledger: the first line of the CSV must start with `# {` and name the schema")
    try:
        head = json.loads(first[2:])
    except json.JSONDecodeError as error:
        raise LedgerFormatError(f"the head line of the CSV is not JSON: {error}") from error
    if not isinstance(head, dict):
        raise LedgerFormatError("the head line of the CSV must be a JSON object that names the schema")
    rows = list(csv.DictReader(io.StringIO(rest)))
    for number, row in enumerate(rows):
        if None in row or None in row.values():  # the reader's mark for too many and too few cells
            raise LedgerFormatError(f"line {number}: {len(row)} columns were expected, the row has more or fewer")
    return _ledger(head, rows)


def _ledger(head: Mapping[str, Any], rows: list[dict[str, Any]]) -> Ledger:
    if head.get("schema") != SCHEMA:
        raise LedgerFormatError(f"this version reads schema {SCHEMA}, the file says {head.get('schema')!r}")
    try:
        convention = _convention(head.get("convention", {}))
        lines = tuple(_line(row, number) for number, row in enumerate(rows))
    except (TypeError, KeyError) as error:
        raise LedgerFormatError(f"a field is missing or unknown: {error}") from error
    return Ledger(lines, convention, tuple(head.get("assumptions", ())))


def _convention(fields: Mapping[str, Any]) -> Convention:
    for name, choices in _CONVENTION_CHOICES.items():
        if name in fields and fields[name] not in choices:
            raise LedgerFormatError(f"convention {name} is {fields[name]!r}, expected one of {choices}")
    return Convention(**fields)


def _line(row: Mapping[str, Any], number: int) -> Line:
    for name, choices in _CHOICES.items():
        if row[name] not in choices:
            raise LedgerFormatError(f"line {number}: {name} is {row[name]!r}, expected one of {', '.join(choices)}")
    place = {name: row[name] for name in _PLACE_FIELDS if name != "times"}
    work = Work(*(_amount(row[name], number, name) for name in WORK_FIELDS))
    times = _amount(row["times"], number, "times")
    if times is None:
        raise LedgerFormatError(f"line {number}: times is missing; only amounts of work may be unknown")
    return Line(**place, work=work, times=times, shape=_shape(row["shape"], number))


def _shape(text: Any, number: int) -> tuple[tuple[str, Amount], ...]:
    if not isinstance(text, str):
        raise LedgerFormatError(f"line {number}: shape is {text!r}, expected text such as `b=1 m=2`")
    pairs = (part.partition("=") for part in text.split())
    return tuple((name, _amount(size, number, f"shape {name}")) for name, _, size in pairs)


def _amount(value: Any, number: int, name: str) -> Amount:
    if value is None or value == "":
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    for read in (int, float) if isinstance(value, str) else ():
        try:
            return read(value)
        except ValueError:
            continue
    raise LedgerFormatError(f"line {number}: {name} is {value!r}, expected a number or nothing")
