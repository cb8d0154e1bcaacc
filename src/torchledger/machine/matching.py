"""From a name to its chip: exact names first, then the longest alias whose other words the chip explains.

A name is never matched by a part of it alone ("L40S" is no L4), and what nobody can explain is no match.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchledger.machine.catalog import Catalog, builtin
from torchledger.machine.chip import Chip
from torchledger.machine.errors import UnknownChip
from torchledger.machine.spelling import could_report, explains, joined, splits, words


def match(name: str, memory_bytes: int | None = None, *, catalog: Catalog | None = None) -> Chip | None:
    """The chip that a driver or an operating system calls by this name; None if none or more than one fits.

    Args:
        name: a CUDA or ROCm device name, or a CPU's model name ("NVIDIA H100 80GB HBM3").
        memory_bytes: what the device reports, which tells apart chips that share a name (an H100 of 95 GiB).
        catalog: another catalog than the package's.
    """
    found = candidates(name, memory_bytes, catalog or builtin())
    return found[0] if len(found) == 1 else None


def get(name: str, *, catalog: Catalog | None = None) -> Chip:
    """The chip of this name, in any usual spelling ("h100", "A100-SXM4-80GB", "NVIDIA GeForce RTX 4090").

    A count beside the name ("8xA100") is no part of it and is passed over; `parse_cluster` reads it.

    Raises:
        UnknownChip: no row has this name, or several fit it; lists close names.

    >>> get("h100").name
    'H100 SXM'
    """
    catalog = catalog or builtin()
    found = candidates(name, None, catalog)
    if not found:
        found = next((those for rest, _ in splits(name) if (those := candidates(rest, None, catalog))), ())
    if len(found) != 1:
        raise UnknownChip(name, close_names(name, catalog), [chip.name for chip in found])
    return found[0]


def candidates(name: str, memory_bytes: int | None, catalog: Catalog) -> tuple[Chip, ...]:
    """The chips that a name fits: none, the one, or several that it does not tell apart."""
    for alias, rest in _readings(words(name)):
        chip = catalog.named(alias)
        if chip is None:
            continue
        if _fits(chip, rest, memory_bytes):
            return (chip,)
        if alias == joined(chip.family):
            relatives = tuple(each for each in catalog.family(chip) if _fits(each, rest, memory_bytes))
            if relatives:
                return relatives
    return ()


def _fits(chip: Chip, rest: tuple[str, ...], memory_bytes: int | None) -> bool:
    return explains(chip, rest) and (memory_bytes is None or could_report(chip, memory_bytes))


def _readings(name_words: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every run of neighbouring words as an alias, and the words beside it; the longest alias first."""
    n = len(name_words)
    runs = ((first, last) for first in range(n) for last in range(first + 1, n + 1))
    readings = (("".join(name_words[a:b]), name_words[:a] + name_words[b:]) for a, b in runs)
    yield from sorted(readings, key=lambda reading: -len(reading[0]))


def close_names(name: str, catalog: Catalog) -> tuple[str, ...]:
    """Up to five chips whose names are spelled like this one, nearest first."""
    from difflib import get_close_matches

    near = get_close_matches(joined(name), catalog.names(), n=12, cutoff=0.5)
    keys = (chip.key for alias in near if (chip := catalog.named(alias)))
    return tuple(dict.fromkeys(keys))[:5]
