"""`Fabric`: how long ranks of a cluster take to send each other bytes.

    fabric = Fabric.of(cluster)
    fabric.seconds("all_reduce", num_bytes, size, stride)

The ranks r, r + stride, r + 2·stride ... (`size` of them) are a group; islands are filled in the order of the ranks,
so who of a group shares an island follows. All groups of a kind run at the same time, since every rank does the same:
what a chip's own share of link and network carries is what its own group gets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from torchledger.machine import Cluster
from torchledger.planner.fabric_group import Group, group_over
from torchledger.planner.fabric_roads import Roads, roads_of
from torchledger.planner.fabric_ways import OPERATIONS, Operation, Way, ways

# (latency, seconds per byte) of those that may be the fastest, then those whose bandwidth depends on the bytes, each
# with the bytes beyond which it cannot be.
_Fast = tuple[tuple[tuple[float, float], ...], tuple[tuple[float, Way], ...]]


@dataclass(frozen=True, slots=True)
class Explained:
    """How one collective is done and where its seconds go.

    Attributes:
        op: which one.
        num_bytes: of the whole tensor.
        group: its ranks over islands.
        algorithm, protocol: the fastest way; see `Way`.
        bus_bytes_per_s: the bandwidth of its narrowest place.
        link_bytes, network_bytes: what a rank sends inside its island and out of it, on average.
        latency_s: seconds before the first byte.
        transfer_s: seconds for the bytes.
        concurrent: how many share the roads.
    """

    op: Operation
    num_bytes: float
    group: Group
    algorithm: str
    protocol: str
    bus_bytes_per_s: float
    link_bytes: float
    network_bytes: float
    latency_s: float
    transfer_s: float
    concurrent: int

    @property
    def seconds(self) -> float:
        """Both together."""
        return self.latency_s + self.transfer_s


@dataclass(frozen=True, slots=True)
class Fabric:
    """The links and networks of a cluster, for collectives.

    Make one with `Fabric.of`.

    Attributes:
        num_chips: of the cluster.
        roads: the rates and hops.
        assumptions: every one that was made, in words.
    """

    num_chips: int
    roads: Roads
    assumptions: tuple[str, ...]
    _fast: dict[tuple[Operation, int, int, int, int], _Fast] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        *,
        link_share: float | None = None,
        link_latency_s: float | None = None,
        network_share: float | None = None,
        network_latency_s: float | None = None,
    ) -> Fabric:
        """The fabric of a cluster. Nothing takes what is published of links of their kind (`data/links.toml`).

        Args:
            cluster: whose.
            link_share: of the link's nominal rate, what a ring of large messages sustains inside an island.
            link_latency_s: seconds of one hop inside an island (a ring's, Simple protocol; the others in proportion).
            network_share: the same of the network.
            network_latency_s: the same between islands.

        Raises:
            PlanError: a share or latency that cannot be; a link or network that nobody told.

        >>> from torchledger.machine import parse_cluster
        >>> fabric = Fabric.of(parse_cluster("a100x16"), link_share=0.8, network_share=0.9)
        >>> seconds = fabric.seconds("all_reduce", 16e9, 8, 1)  # 2·7/8·16 GB over 0.8·300 GB/s, and hops
        >>> round(seconds, 3), round(2 * 7 / 8 * 16e9 / (0.8 * 300e9), 3)
        (0.117, 0.117)
        """
        roads, assumptions = roads_of(
            cluster,
            link_share=link_share,
            link_latency_s=link_latency_s,
            network_share=network_share,
            network_latency_s=network_latency_s,
        )
        return cls(cluster.num_chips, roads, assumptions)

    def seconds(
        self, op: Operation, num_bytes: float, size: int, stride: int, concurrent: int = 1, *, copies: int = 0
    ) -> float:
        """How long a collective takes.

        Args:
            op: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, `broadcast`, or `send`: every rank to the
                next of its group, which takes as long as the slowest.
            num_bytes: of the whole tensor: an all-gather's result, a reduce-scatter's or all-reduce's operand, one
                rank's buffer of an all-to-all, a send's payload.
            size: ranks of a group; one takes no time.
            stride: between the numbers of two neighbours in it.
            concurrent: how many such things the same chips do at the same time (a gradient reduction beside a send: 2).
            copies: of an all-to-all, how many copies of a token its bytes are, an island getting one of them only.
        """
        fast = self._fast.get((op, size, stride, concurrent, copies))
        if fast is None:
            fast = self._prepare(op, size, stride, concurrent, copies)
        lines, corrected = fast
        best = math.inf
        for latency_s, byte_s in lines:
            seconds = latency_s + num_bytes * byte_s
            if seconds < best:  # noqa: PLR1730 (`min` takes 0.6 us a call where this takes 0.4)
                best = seconds
        for limit, way in corrected:
            if num_bytes < limit:
                best = min(best, way.seconds(num_bytes))
        return best

    def explain(self, op: Operation, num_bytes: float, size: int, stride: int, concurrent: int = 1) -> Explained:
        """The same with its parts; `explain(...).seconds == seconds(...)`."""
        group, known = self._ways(op, size, stride, concurrent)
        if not known:
            return Explained(op, num_bytes, group, "none", "", math.inf, 0.0, 0.0, 0.0, 0.0, concurrent)
        way = min(known, key=lambda each: each.seconds(num_bytes))
        sent = num_bytes * way.sent_share
        return Explained(
            op,
            num_bytes,
            group,
            way.algorithm,
            way.protocol,
            way.bus_bytes_per_s,
            link_bytes=sent * (1 - way.network_share),
            network_bytes=sent * way.network_share,
            latency_s=way.latency_s,
            transfer_s=way.seconds(num_bytes) - way.latency_s,
            concurrent=concurrent,
        )

    def _ways(
        self, op: Operation, size: int, stride: int, concurrent: int, copies: int = 0
    ) -> tuple[Group, tuple[Way, ...]]:
        assert op in OPERATIONS, op
        assert concurrent >= 1, concurrent
        group = group_over(size, stride, self.roads.chips_per_island, self.num_chips)
        if size == 1:
            return group, ()
        pods = _over_pods(size, stride, self.roads.chips_per_pod, self.num_chips)
        return group, tuple(_shared(way, concurrent) for way in ways(op, group, pods, self.roads, copies))

    def _prepare(self, op: Operation, size: int, stride: int, concurrent: int, copies: int) -> _Fast:
        _, known = self._ways(op, size, stride, concurrent, copies)
        lines = _lowest([(way.latency_s, way.byte_s) for way in known if not way.correction]) or ((0.0, 0.0),)
        corrected = tuple((limit, way) for way in known if way.correction and (limit := _limit(way, lines)) > 0)
        fast = self._fast[op, size, stride, concurrent, copies] = (lines, corrected)
        return fast


def _over_pods(size: int, stride: int, pod: int, num_chips: int) -> Group:
    """The group over pods. The last pod may be full in part, but its ranks have all of its way out: not the worst."""
    group = group_over(size, stride, pod, num_chips)
    return group if group.num_domains == 1 else replace(group, least=min(size, max(pod // stride, 1)))


def _shared(way: Way, concurrent: int) -> Way:
    if concurrent == 1:
        return way
    return replace(way, byte_s=way.byte_s * concurrent, bus_bytes_per_s=way.bus_bytes_per_s / concurrent)


def _lowest(lines: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Those lines that are somewhere the lowest, for bytes from 0 on."""
    kept: list[tuple[float, float]] = []
    for latency_s, byte_s in sorted(lines):
        if kept and byte_s >= kept[-1][1]:
            continue
        while len(kept) > 1 and _meet(kept[-2], (latency_s, byte_s)) <= _meet(kept[-2], kept[-1]):
            kept.pop()
        kept.append((latency_s, byte_s))
    return tuple(kept)


def _meet(early: tuple[float, float], late: tuple[float, float]) -> float:
    """Bytes at which the later line becomes the lower one."""
    return (late[0] - early[0]) / (early[1] - late[1])


def _limit(way: Way, lines: tuple[tuple[float, float], ...]) -> float:
    """Bytes beyond which the corrected way is never the fastest: its bandwidth is at most what its table's 1 says."""
    largest = max(way.correction)
    limits = [
        (latency_s - way.latency_s) / (way.byte_s / largest - byte_s) if way.byte_s / largest > byte_s else math.inf
        for latency_s, byte_s in lines
    ]
    return min(limits)
