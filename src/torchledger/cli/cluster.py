"""The chips of `--on`: a chip and a number, a known cluster, or a file; with the user's own catalog before ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torchledger import machine
from torchledger.machine import Cluster
from torchledger.machine.matching import candidates


def read_on(name: str, num_chips: int | None = None, catalog_files: Sequence[Path] = ()) -> Cluster:
    """Chips and their number (`h100x1024`), a known cluster (`dgx-h100x1024`), or one of a TOML file.

    Args:
        name: as `--on` takes it.
        num_chips: how many, where the name does not say; a file's own number gives way to it.
        catalog_files: rows of the user's own, later files over earlier ones.

    Raises:
        MachineError: no chip and no cluster has this name, a file has mistakes, or the name says another number.
        OSError: a file cannot be read.

    >>> read_on("h100x8").num_chips, read_on("dgx-h100x16").chip.name
    (8, 'H100 SXM')
    """
    catalog = machine.load(catalog_files) if catalog_files else None
    if name.endswith(".toml"):
        return machine.read_cluster(name, num_chips, catalog=catalog)
    try:
        cluster = machine.parse_cluster(name, catalog=catalog)
    except machine.UnknownChip as unknown:
        known, _, count = name.rpartition("x")
        sized = bool(known) and count.isdecimal()
        try:
            found = machine.named_cluster(known if sized else name, int(count) if sized else num_chips)
        except machine.BadCluster:
            raise unknown from None
        return _of_one_number(name, found, num_chips)
    if num_chips is None:
        return cluster
    if says_how_many(name, catalog_files):
        return _of_one_number(name, cluster, num_chips)
    return replace(cluster, num_chips=num_chips)


def says_how_many(name: str, catalog_files: Sequence[Path] = ()) -> bool:
    """Whether the chips of `--on` have their number with them.

    >>> [says_how_many(name) for name in ("h100", "h100x1", "8 a100", "dgx-h100", "dgx-h100x16")]
    [False, True, True, False, True]
    """
    if name.endswith(".toml"):
        return False
    if candidates(name, None, machine.load(catalog_files)):
        return False
    try:
        machine.named_cluster(name)
    except machine.BadCluster:
        return True
    return False


def _of_one_number(name: str, cluster: Cluster, num_chips: int | None) -> Cluster:
    if num_chips is not None and cluster.num_chips != num_chips:
        raise machine.BadCluster(
            f"{name!r} says {cluster.num_chips} chips and --chips {num_chips}; leave one of the two out"
        )
    return cluster
