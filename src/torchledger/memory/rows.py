"""Timelines out and in: versioned JSON, one row a block, each string once (a step of an 8B model has 20,000 blocks)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from torchledger.memory.timeline import PARTS, Block, Timeline

SCHEMA = "torchledger.timeline/2"

_TEXT_FIELDS = ("part", "module", "op", "phase", "name", "number_format", "source", "stream")
_OTHER_FIELDS = ("num_bytes", "shape", "call", "allocated", "freed", "on_host")


class TimelineFormatError(ValueError):
    """A file is not a timeline, or a timeline of a schema that this version does not read."""


def to_dict(timeline: Timeline) -> dict[str, Any]:
    """The timeline as JSON-ready data with its schema version; `texts` holds each distinct string once."""
    texts: dict[str, int] = {}
    rows = [
        [texts.setdefault(getattr(block, name), len(texts)) for name in _TEXT_FIELDS]
        + [getattr(block, name) for name in _OTHER_FIELDS]
        for block in timeline.blocks
    ]
    return {
        "schema": SCHEMA,
        "fields": [*_TEXT_FIELDS, *_OTHER_FIELDS],
        "texts": list(texts),
        "blocks": rows,
        "num_events": timeline.num_events,
        "call_positions": list(timeline.call_positions),
        "marks": dict(timeline.marks),
    }


def to_json(timeline: Timeline, *, indent: int | None = None) -> str:
    """The timeline as JSON text."""
    return json.dumps(to_dict(timeline), indent=indent)


def from_json(text: str) -> Timeline:
    """Read what `to_json` wrote.

    Raises:
        TimelineFormatError: not JSON, not a timeline, or another schema; the message says which.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise TimelineFormatError(f"not JSON: {error}") from error
    if not isinstance(data, dict) or "blocks" not in data:
        raise TimelineFormatError("not a timeline: a JSON object with `schema` and `blocks` is expected")
    if data.get("schema") != SCHEMA:
        raise TimelineFormatError(f"this version reads schema {SCHEMA}, the file says {data.get('schema')!r}")
    try:
        blocks = tuple(_block(row, data) for row in data["blocks"])
        timeline = Timeline(blocks, data["num_events"], tuple(data["call_positions"]), data["marks"])
    except (TypeError, KeyError, IndexError, ValueError) as error:
        raise TimelineFormatError(f"a field is missing or wrong: {error!r}") from error
    if len(blocks) + sum(block.freed is not None for block in blocks) != timeline.num_events:
        raise TimelineFormatError(f"the blocks do not fill the {timeline.num_events} events that the file tells of")
    return timeline


def _block(row: list[Any], data: Mapping[str, Any]) -> Block:
    values = dict(zip(data["fields"], row, strict=True))
    for name in _TEXT_FIELDS:
        values[name] = data["texts"][values[name]]
    if values["part"] not in PARTS:
        raise ValueError(f"part is {values['part']!r}, expected one of {', '.join(PARTS)}")
    return Block(**{**values, "shape": tuple(values["shape"])})
