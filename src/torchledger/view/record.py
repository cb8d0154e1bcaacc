"""Run records out and in as JSON: what a report embeds and `compare` reads back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torchledger.ledger import Difference, Finding, LedgerFormatError, RunRecord, from_json, to_dict

SCHEMA = "torchledger.run/1"


class RecordFormatError(ValueError):
    """A file is not a run record, or one of a schema that this version does not read."""


def record_to_dict(record: RunRecord) -> dict[str, Any]:
    """The record as JSON-ready data with its schema version. What is not finite becomes null: JSON has no NaN."""
    data = {
        "schema": SCHEMA,
        "name": record.name,
        "config": record.config,
        "environment": record.environment,
        "prediction": record.prediction,
        "metrics": record.metrics,
        "differences": [asdict(each) for each in record.differences],
        "ledger": None if record.ledger is None else to_dict(record.ledger),
        "memory": record.memory,
        "samples": record.samples,
        "findings": [asdict(each) for each in record.findings],
    }
    flat: dict[str, Any] = plain(data)
    return flat


def record_to_json(record: RunRecord, *, indent: int | None = None) -> str:
    """The record as JSON text."""
    return json.dumps(record_to_dict(record), indent=indent, allow_nan=False)


def record_from_dict(data: Mapping[str, Any]) -> RunRecord:
    """Read what `record_to_dict` wrote.

    Raises:
        RecordFormatError: another schema, or a field is missing or wrong.
    """
    if data.get("schema") != SCHEMA:
        raise RecordFormatError(f"this version reads schema {SCHEMA}, the file says {data.get('schema')!r}")
    try:
        return RunRecord(
            name=data["name"],
            config=data["config"],
            environment=data["environment"],
            prediction=data["prediction"],
            metrics=tuple(data["metrics"]),
            differences=tuple(Difference(**each) for each in data["differences"]),
            ledger=None if data["ledger"] is None else from_json(json.dumps(data["ledger"])),
            memory=data["memory"],
            samples=tuple(data["samples"]),
            findings=tuple(Finding(**each) for each in data["findings"]),
        )
    except (KeyError, TypeError, LedgerFormatError) as error:
        raise RecordFormatError(f"a field of the run record is missing or wrong: {error}") from error


def record_from_json(text: str) -> RunRecord:
    """Read what `record_to_json` wrote.

    Raises:
        RecordFormatError: not JSON, another schema, or a field is missing or wrong.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise RecordFormatError(f"not JSON: {error}") from error
    if not isinstance(data, dict):
        raise RecordFormatError("not a run record: a JSON object with `schema` is expected")
    return record_from_dict(data)


def plain(value: Any) -> Any:
    """The value as JSON can hold it: mappings and lists all the way down, what is not finite as null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
