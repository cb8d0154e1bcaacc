"""One table of a catalog file becomes one `Chip`; every mistake in it is found in one go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torchledger.machine.chip import NUMBER_FORMATS, Chip, Peak, Quoted, Sparsity
from torchledger.machine.link import Link

Table = Mapping[str, Any]

_KINDS = ("gpu", "tpu", "accelerator", "cpu")
_CONFIDENCES = ("high", "medium", "low")

# Every field a row may have, by its dotted path, and what it must be.
FIELDS: Mapping[str, type] = {
    **dict.fromkeys(("name", "family", "kind", "vendor", "architecture", "form_factor"), str),
    **dict.fromkeys(("confidence", "date", "source", "notes", "memory.kind", "link.name", "network.name"), str),
    **dict.fromkeys(("year", "num_cores", "devices_per_chip", "slice_name_counts_per_chip", "chips_per_island"), int),
    **dict.fromkeys(("memory.bytes_nominal", "memory.reported_mib"), int),
    **dict.fromkeys(("memory.bytes_per_s", "tdp_w"), float),
    **{f"{which}.{fmt}": float for which in ("dense", "sparse", "measured") for fmt in NUMBER_FORMATS},
    **{f"{link}.{rate}": float for link in ("link", "network") for rate in ("bytes_per_s_per_direction", "latency_s")},
    "link.bytes_per_s_per_peer": float,
    "link.peer_to_peer": bool,
    "memory.unified": bool,
    "measured_source": str,
    "sparsity.pattern": str,
    "sparsity.times_dense": float,
    "sparsity.formats": list,
    "sparsity.reason": str,
    "aliases": list,
    "lacks": list,
    "quoted": list,
}
_REQUIRED = ("name", "kind", "vendor", "architecture", "form_factor", "confidence", "date", "source", "notes")
# What a table must have, if the row has the table.
_WHOLE_TABLES = {
    "link": ("name", "bytes_per_s_per_direction"),
    "network": ("bytes_per_s_per_direction",),
    "sparsity": ("pattern", "times_dense", "formats", "reason"),
}
_TABLES = {path.partition(".")[0] for path in FIELDS if "." in path}
_WORDS_FOR = {str: "text", int: "a whole number above zero", float: "a number above zero", bool: "true or false"}


def mistakes_in(row: Table) -> list[str]:
    """Every mistake of a row, as "field: what is wrong"; an empty list means that `to_chip` will take it."""
    found = list(_flat_mistakes(row))
    flat = flatten(row)
    found += [f"{path}: is missing" for path in _REQUIRED if path not in flat]
    if not any(path in FIELDS for path in flat if path.startswith("dense.")):
        found.append("dense: needs at least one peak, for example dense.bf16 = 989.4e12 (FLOP/s)")
    for path, choices in (("kind", _KINDS), ("confidence", _CONFIDENCES)):
        if isinstance(flat.get(path), str) and flat[path] not in choices:
            found.append(f"{path}: {flat[path]!r} is none of {', '.join(choices)}")
    for table, fields in _WHOLE_TABLES.items():
        if any(path.startswith(f"{table}.") for path in flat):
            found += [f"{table}.{each}: is missing" for each in fields if f"{table}.{each}" not in flat]
    return found


def _flat_mistakes(row: Table) -> Iterator[str]:
    for path, value in flatten(row).items():
        wanted = FIELDS.get(path)
        if wanted is None:
            yield f"{path}: no such field{_did_you_mean(path)}"
        elif wanted is list:
            if path == "quoted":
                yield from _quoted_mistakes(value)
            elif not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
                yield f"{path}: must be a list of texts, not {value!r}"
        elif not _fits(value, wanted):
            yield f"{path}: must be {_WORDS_FOR[wanted]}, not {value!r}"


def _fits(value: object, wanted: type) -> bool:
    if wanted in (int, float):
        numbers = (int,) if wanted is int else (int, float)
        return isinstance(value, numbers) and not isinstance(value, bool) and 0 < value < float("inf")
    return isinstance(value, wanted)


def _quoted_mistakes(value: object) -> Iterator[str]:
    entries = value if isinstance(value, list) else [value]
    for i, entry in enumerate(entries):
        fine = isinstance(entry, dict) and entry.keys() == {"what", "value", "by"} and _fits(entry["value"], float)
        if not fine or entry["what"] not in FIELDS:
            yield f"quoted[{i}]: needs what (a field of the row), value (a number) and by (who says it), not {entry!r}"


def _did_you_mean(path: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(path, FIELDS, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def flatten(row: Table) -> dict[str, Any]:
    """The row's values by dotted path.

    >>> flatten({"name": "X", "dense": {"bf16": 1e12}})
    {'name': 'X', 'dense.bf16': 1000000000000.0}
    """
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if key in _TABLES and isinstance(value, dict):
            flat |= {f"{key}.{inner}": each for inner, each in value.items()}
        else:
            flat[key] = value
    return flat


def to_chip(key: str, row: Table, file: str) -> Chip:
    """The `Chip` that a row says, in which `mistakes_in` found none.

    Args:
        key: the row's name in the file.
        row: its table.
        file: for messages.
    """
    flat = flatten(row)
    reported_mib = flat.get("memory.reported_mib")
    sparsity = row.get("sparsity")
    return Chip(
        key=key,
        file=file,
        family=flat.get("family", key),
        aliases=tuple(flat.get("aliases", ())),
        peaks=tuple(_peaks(flat, sparsity)),
        lacks=tuple(flat.get("lacks", ())),
        sparsity=Sparsity(sparsity["pattern"], sparsity["reason"]) if sparsity else None,
        memory_kind=flat.get("memory.kind"),
        memory_is_unified=flat.get("memory.unified", False),
        memory_bytes_nominal=flat.get("memory.bytes_nominal"),
        memory_bytes_reported=None if reported_mib is None else reported_mib * 2**20,
        memory_bandwidth=flat.get("memory.bytes_per_s"),
        scale_up=_link("link", "link", flat),
        network=_link("network", "typical network", flat),
        measured_source=flat.get("measured_source") if "measured" in row else None,
        quoted=tuple(Quoted(**entry) for entry in flat.get("quoted", ())),
        devices_per_chip=flat.get("devices_per_chip", 1),
        **{name: flat[name] for name in _REQUIRED},
        year=flat.get("year"),
        num_cores=flat.get("num_cores"),
        chips_per_island=flat.get("chips_per_island"),
        slice_name_counts_per_chip=flat.get("slice_name_counts_per_chip"),
        tdp_w=flat.get("tdp_w"),
    )


def _peaks(flat: Table, sparsity: Table | None) -> Iterator[Peak]:
    for fmt in NUMBER_FORMATS:
        dense = flat.get(f"dense.{fmt}")
        if dense is None:
            continue
        sparse = flat.get(f"sparse.{fmt}")
        if sparse is None and sparsity and fmt in sparsity["formats"]:
            sparse = dense * sparsity["times_dense"]
        yield Peak(fmt, dense, sparse, flat.get(f"measured.{fmt}"))


def _link(table: str, default_name: str, flat: Table) -> Link | None:
    rate = flat.get(f"{table}.bytes_per_s_per_direction")
    if rate is None:
        return None
    return Link(
        name=flat.get(f"{table}.name", default_name),
        bytes_per_s_per_direction=rate,
        bytes_per_s_per_peer=flat.get(f"{table}.bytes_per_s_per_peer"),
        peer_to_peer=flat.get(f"{table}.peer_to_peer"),
        latency_s=flat.get(f"{table}.latency_s"),
    )
