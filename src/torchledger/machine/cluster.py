"""`Cluster`: a number of equal chips, joined by a fast link inside islands and by a network between them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from torchledger.machine.catalog import Catalog, builtin
from torchledger.machine.chip import Chip
from torchledger.machine.errors import BadCluster, UnknownChip
from torchledger.machine.link import Link
from torchledger.machine.matching import candidates, close_names, get
from torchledger.machine.spelling import splits
from torchledger.units import UnitError, parse_count, parse_rate

# TPU slices are named by generation and size: v4-4096, tpu-v5p-8, v5litepod-256.
_SLICE = re.compile(r"(?:tpu[ -]?)?(v\d[a-z]*)-(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A number of equal chips.

    Attributes:
        chip: each of them.
        num_chips: how many.
        chips_per_island: how many the scale-up link joins (an NVLink domain of 8, a rack of 72, a pod).
        scale_up: the link inside an island; None: unknown, or there is none.
        network: the network between islands, per chip (all the cards of an island over its chips); None: unknown.
        chips_per_pod: how many chips the network joins at its full rate; None: all of them.
        oversubscription: how many times less than that a pod has towards other pods (7 for 1:7).
        name: of a known cluster; "": it has none.
        source: where its own facts stand; "": it has those of the chip's row.
    """

    chip: Chip
    num_chips: int
    chips_per_island: int
    scale_up: Link | None
    network: Link | None
    chips_per_pod: int | None = None
    oversubscription: float = 1.0
    name: str = ""
    source: str = ""

    @classmethod
    def of(cls, chip: Chip, num_chips: int) -> Cluster:
        """So many chips, joined as the chip's row says.

        Raises:
            BadCluster: fewer than one chip.
        """
        if num_chips < 1:
            raise BadCluster(f"a cluster has at least one chip, not {num_chips}")
        return cls(chip, num_chips, chip.chips_per_island or 1, chip.scale_up, chip.network)

    def joined(
        self,
        *,
        network: str | float | None = None,
        chips_per_island: int | None = None,
        chips_per_pod: int | None = None,
        oversubscription: float | None = None,
    ) -> Cluster:
        """The same chips, joined in another way; what is left out stays.

        Args:
            network: rate of one chip's share of the network in one direction: `400Gb/s`, or bytes per second.
            chips_per_island: how many the scale-up link joins.
            chips_per_pod: how many chips the network joins at its full rate.
            oversubscription: how many times less a pod has towards other pods.

        Raises:
            BadCluster: a value that cannot be, all of them at once.

        >>> Cluster.of(get("h100"), 1024).joined(network="200Gb/s").network.bytes_per_s_per_direction
        25000000000.0
        """
        wrong = []
        rate = self.network
        if network is not None:
            try:
                rate = Link(f"network of {network}", parse_rate(network))
            except UnitError as error:
                wrong.append(f"network: {error}")
            else:
                if not rate.bytes_per_s_per_direction > 0:
                    wrong.append(f"network: {network} moves nothing; write the rate of one chip, for example 400Gb/s")
        for what, number in (("chips per island", chips_per_island), ("chips per pod", chips_per_pod)):
            if number is not None and number < 1:
                wrong.append(f"{what}: at least one, not {number}")
        if oversubscription is not None and not 1 <= oversubscription < float("inf"):
            wrong.append(f"oversubscription: at least 1 (1: none; 7: a seventh), not {oversubscription}")
        if wrong:
            raise BadCluster("; ".join(wrong))
        return replace(
            self,
            network=rate,
            chips_per_island=chips_per_island or self.chips_per_island,
            chips_per_pod=chips_per_pod or self.chips_per_pod,
            oversubscription=self.oversubscription if oversubscription is None else oversubscription,
        )

    @property
    def num_islands(self) -> int:
        """How many islands the chips fill, the last one perhaps in part."""
        return -(-self.num_chips // self.chips_per_island)

    def peak(self, number_format: str) -> float:
        """The dense peak of all chips in FLOP/s.

        Raises:
            NoPeak: the chip has none in this number format.
        """
        return self.num_chips * self.chip.peak(number_format)


def parse_cluster(text: str, *, catalog: Catalog | None = None) -> Cluster:
    """Read a cluster: `h100x1024`, `8xh100`, `1024 H100`, `h100:8`, `h100` (one), `v5e-256` (a TPU slice).

    Raises:
        BadCluster: the count cannot be read, or the text can be read in two ways.
        UnknownChip: the catalog has no chip of this name.

    >>> cluster = parse_cluster("h100x1024")
    >>> cluster.num_chips, cluster.num_islands, cluster.chip.name
    (1024, 128, 'H100 SXM')
    """
    catalog = catalog or builtin()
    if slice_name := _SLICE.fullmatch(text.strip()):
        return _slice(slice_name, catalog)
    if candidates(text, None, catalog):
        return Cluster.of(get(text, catalog=catalog), 1)
    readings = {(name, count): candidates(name, None, catalog) for name, count in splits(text)}
    known = {reading: chips for reading, chips in readings.items() if chips}
    if not known:
        name = next(iter(readings), (text, ""))[0]
        raise UnknownChip(name, close_names(name, catalog))
    if len(known) > 1:
        ways = " or ".join(f"{count} of {name!r}" for name, count in known)
        raise BadCluster(f"{text!r} may be {ways}; write the count first, with a space: `8 h100`")
    ((name, count),) = known
    return Cluster.of(get(name, catalog=catalog), _whole(count, text))


def _whole(count: str, text: str) -> int:
    try:
        return parse_count(count)
    except ValueError as error:
        raise BadCluster(f"how many chips is {text!r}? {error}") from None


def _slice(slice_name: re.Match[str], catalog: Catalog) -> Cluster:
    """A TPU slice, whose name counts cores on some generations and chips on others (the rows say which)."""
    chip = get(f"tpu {slice_name[1]}", catalog=catalog)
    size = int(slice_name[2])
    per_chip = chip.slice_name_counts_per_chip
    if per_chip is None:
        raise BadCluster(f"the row of {chip.name} does not say what {slice_name[0]} counts; write {chip.key}x{size}")
    if size % per_chip:
        raise BadCluster(f"{slice_name[0]} counts cores, {per_chip} to a chip, and {size} is not a multiple of it")
    return Cluster.of(chip, size // per_chip)
