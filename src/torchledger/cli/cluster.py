"""The chips of `--on`: a chip and a number, a known cluster, or a file; with the user's own catalog before ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torchledger import machine
from torchledger.machine import Cluster


def read_on(name: str, num_chips: int | None = None, catalog_files: Sequence[Path] = ()) -> Cluster:
    """Chips and their number (`h100x1024`), a known cluster (`dgx-h100x1024`), or one of a TOML file.

    Args:
        name: as `--on` takes it.
        num_chips: how many, where the name does not say.
        catalog_files: rows of the user's own, later files over earlier ones.

    Raises:
        MachineError: no chip and no cluster has this name, or a file has mistakes.
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
            return machine.named_cluster(known if sized else name, int(count) if sized else num_chips)
        except machine.BadCluster:
            raise unknown from None
    return cluster if num_chips is None else replace(cluster, num_chips=num_chips)
