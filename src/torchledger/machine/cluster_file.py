"""Known clusters, and clusters that a user describes in a file of the same form.

A file says what a chip's row cannot know: how many chips an island has here, and what network joins islands.

    chip = "h100"
    num_chips = 1024
    chips_per_island = 8
    network = "400Gb/s"          # of one chip, in one direction: 8 cards of 400 Gb/s for 8 chips
    network_name = "InfiniBand NDR"
    network_adds_up = false      # true where all-reduces run in its switches (SHARP)
    chips_per_pod = 256          # joined at the full rate ...
    oversubscription = 2         # ... and at half of it beyond
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any

from torchledger.machine.catalog import Catalog
from torchledger.machine.cluster import Cluster
from torchledger.machine.errors import BadCluster
from torchledger.machine.link import Link
from torchledger.machine.matching import get
from torchledger.machine.spelling import joined
from torchledger.units import UnitError, parse_rate

PUBLISHED = Path(__file__).parent / "data" / "clusters" / "published.toml"

_WHOLE = ("num_chips", "chips_per_island", "chips_per_pod")
_NUMBERS = ("network_measured_share", "oversubscription")
_TEXTS = ("chip", "network_name", "name", "confidence", "date", "source", "notes")
_KNOWN = {*_WHOLE, *_NUMBERS, *_TEXTS, "network", "network_adds_up", "aliases", "extends"}


@dataclass(frozen=True, slots=True)
class KnownCluster:
    """A cluster of which somebody published facts, or a machine type, without its size.

    Attributes:
        name: its key in the file.
        aliases: other names.
        cluster: one island of it.
        confidence, date, source, notes: where the facts come from.
    """

    name: str
    aliases: tuple[str, ...]
    cluster: Cluster
    confidence: str
    date: str
    source: str
    notes: str


def named_cluster(name: str, num_chips: int | None = None) -> Cluster:
    """So many chips of a known cluster, joined as its source says.

    Args:
        name: of `list_clusters()`, in any usual spelling.
        num_chips: how many; nothing is one island.

    Raises:
        BadCluster: no known cluster has this name, or there is less than one chip.

    >>> cluster = named_cluster("vtrain-a100", 512)
    >>> cluster.num_islands, cluster.network.bytes_per_s_per_direction * 8  # 4 cards of 200 Gb/s for 8 chips
    (64, 100000000000.0)
    """
    known = _by_name().get(joined(name))
    if known is None:
        known_names = ", ".join(each.name for each in list_clusters())
        raise BadCluster(f"no known cluster is named {name!r}; known: {known_names}")
    return _sized(known.cluster, num_chips)


@cache
def list_clusters() -> tuple[KnownCluster, ...]:
    """Every known cluster, in the file's order."""
    tables = tomllib.loads(PUBLISHED.read_text(encoding="utf-8"))
    shared = tables.pop("file")
    found = []
    for name, own in tables.items():
        row = {**shared, **own}
        if base := row.pop("extends", None):
            row = {**{k: v for k, v in tables[base].items() if k not in {"aliases", "notes", "source"}}, **row}
        cluster = replace(_cluster(row, PUBLISHED.name, None), name=name)
        about = {what: row[what] for what in ("confidence", "date", "source", "notes")}
        found.append(KnownCluster(name, tuple(row.get("aliases", ())), cluster, **about))
    return tuple(found)


def read_cluster(path: str | PathLike[str], num_chips: int | None = None, *, catalog: Catalog | None = None) -> Cluster:
    """Read a cluster that a user describes in a TOML file; see the module's docstring for its fields.

    Args:
        path: the file. `chip` is all that it must say; what it leaves out is as the chip's row has it.
        num_chips: how many, if the file does not say or another number is meant.
        catalog: another catalog than the package's.

    Raises:
        BadCluster: the file is no TOML or has mistakes; the message lists all of them.
        UnknownChip: no chip has the name that it says.
        OSError: the file cannot be read.
    """
    path = Path(path)
    try:
        row = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadCluster(f"{path.name}: is no TOML: {error}") from None
    return _sized(_cluster(row, path.name, catalog), num_chips or row.get("num_chips"))


def _by_name() -> dict[str, KnownCluster]:
    return {joined(name): known for known in list_clusters() for name in (known.name, *known.aliases)}


def _sized(cluster: Cluster, num_chips: int | None) -> Cluster:
    if num_chips is not None and num_chips < 1:
        raise BadCluster(f"a cluster has at least one chip, not {num_chips}")
    return replace(cluster, num_chips=num_chips or cluster.chips_per_island)


def _cluster(row: dict[str, Any], file: str, catalog: Catalog | None) -> Cluster:
    wrong = list(_mistakes(row))
    if wrong:
        raise BadCluster("; ".join(f"{file}: {each}" for each in wrong))
    chip = get(row["chip"], catalog=catalog)
    island = row.get("chips_per_island", chip.chips_per_island or 1)
    return replace(
        Cluster.of(chip, island),
        chips_per_island=island,
        network=_network(row, chip.network),
        chips_per_pod=row.get("chips_per_pod"),
        oversubscription=float(row.get("oversubscription", 1)),
        name=row.get("name", ""),
        source=row.get("source", file),
    )


def _network(row: dict[str, Any], typical: Link | None) -> Link | None:
    if "network" not in row:
        return typical
    name = row.get("network_name", f"network of {row['network']}")
    share, adds_up = row.get("network_measured_share"), row.get("network_adds_up", False)
    return Link(name, parse_rate(row["network"]), measured_share=share, adds_up=adds_up)


def _mistakes(row: dict[str, Any]) -> list[str]:
    found = [f"{key}: no such field; known: {', '.join(sorted(_KNOWN))}" for key in row if key not in _KNOWN]
    if "chip" not in row:
        found.append('chip: is missing, for example chip = "h100"')
    found += [f"{key}: must be text, not {row[key]!r}" for key in _TEXTS if not isinstance(row.get(key, ""), str)]
    for key in _WHOLE:
        if key in row and not (type(row[key]) is int and row[key] >= 1):
            found.append(f"{key}: must be a whole number above zero, not {row[key]!r}")
    for key, least, most in (("network_measured_share", 0, 1), ("oversubscription", 1, float("inf"))):
        value = row.get(key, 1)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most or value == 0:
            found.append(f"{key}: must be a number from {least} to {most}, not {value!r}")
    if not isinstance(row.get("network_adds_up", False), bool):
        found.append(f"network_adds_up: must be true or false, not {row['network_adds_up']!r}")
    if "network" in row:
        try:
            rate = parse_rate(row["network"])
        except (UnitError, TypeError) as error:
            found.append(f"network: {error}")
        else:
            if not rate > 0:
                found.append(f"network: {row['network']!r} moves nothing; write the rate of one chip, such as 400Gb/s")
    return found
