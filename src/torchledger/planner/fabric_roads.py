"""`Roads`: the rates and hops between the chips of one cluster, what is not stated filled in from facts."""

from __future__ import annotations

from dataclasses import dataclass

from torchledger.machine import Cluster, Link
from torchledger.planner.errors import PlanError
from torchledger.planner.fabric_facts import PROTOCOLS, LinkFacts, host_bus, link_facts, nccl, network_facts, xla
from torchledger.units import format_duration, format_percent, format_rate

_RING_SIMPLE = ("ring", PROTOCOLS.index("Simple"))


@dataclass(frozen=True, slots=True)
class Roads:
    """What one chip has to send over. Rates are bytes per second of one direction, as large messages reach them.

    Attributes:
        chips_per_island: how many the link joins.
        chips_per_pod: how many the network joins at its full rate.
        link: rate inside the island, all lanes together; nothing: islands of one.
        local: rate of the chip's own copies and additions beside a ring inside the island; nothing: in `link`.
        peer: rate to one other chip, where it is less than that; nothing: as fast.
        switch: rate through a switch that adds up; nothing: none does.
        switch_s: seconds that adding up in the switch takes before its bytes.
        network: rate of one chip's share of the network; nothing: there is one island.
        pod: rate of one chip's share out of its pod.
        network_adds_up: all-reduces run in the network's switches.
        library: "nccl" or "xla".
        is_bus: the link is a bus of the host (PCIe).
        chips_per_axis: of a torus; nothing: it is none.
        architecture: of the chip, which limits NCCL's first protocol.
        link_hop_scale, network_hop_scale: what the hops of the library are multiplied with.
    """

    chips_per_island: int
    chips_per_pod: int
    link: float | None
    local: float | None
    peer: float | None
    switch: float | None
    switch_s: float
    network: float | None
    pod: float | None
    network_adds_up: bool
    library: str
    is_bus: bool
    chips_per_axis: int | None
    architecture: str
    link_hop_scale: float
    network_hop_scale: float

    def within(self, members: int, fewest: int | None = None) -> float | None:
        """The rate of a ring inside an island, nothing where there is no link.

        Chips of a full mesh have a lane to every other, so `members` of them have (members - 1) rings to run over
        (AMD's Infinity Fabric); on a torus they have two directions of each axis that they fill.

        Args:
            members: of the group in an island.
            fewest: in the island with the fewest of them.
        """
        if self.link is None:
            return None
        if self.peer is None:
            return self.link
        fewest = max(fewest or members, 2)
        if self.chips_per_axis is None:
            return min(self.link, (fewest - 1) * self.peer)
        axes = _axes(members, self.chips_per_axis)
        return min(self.link, self.peer if members == 2 else 2 * axes * self.peer)


def roads_of(
    cluster: Cluster,
    *,
    link_share: float | None,
    link_latency_s: float | None,
    network_share: float | None,
    network_latency_s: float | None,
) -> tuple[Roads, tuple[str, ...]]:
    """The roads of a cluster and what was assumed of them; see `Fabric.of` for the arguments."""
    _check(link_share, link_latency_s, network_share, network_latency_s)
    cluster, assumptions = _with_host(cluster)
    link, facts = cluster.scale_up, link_facts(cluster.scale_up.name if cluster.scale_up else "")
    size = min(cluster.chips_per_island, cluster.num_chips)
    if size > 1 and link is None:
        raise PlanError(
            f"how fast {size} chips of {cluster.chip.name} in one island are joined is unknown: its row has no link;"
            " write one in a row of your own that extends it"
        )
    share = _link_share(link, facts, link_share)
    is_bus = link is not None and link.name.startswith("PCIe")
    network, hop_scale, network_text = _network(cluster, network_share)
    roads = Roads(
        chips_per_island=cluster.chips_per_island,
        chips_per_pod=cluster.chips_per_pod or max(cluster.num_chips, cluster.chips_per_island),
        link=link.bytes_per_s_per_direction * share if link and size > 1 else None,
        local=facts.local_bytes_per_s if link and link_share is None and link.measured_share is None else None,
        peer=link.bytes_per_s_per_peer * share if link and link.bytes_per_s_per_peer else None,
        # a share that was told for rings says as much more or less of the switch
        switch=link.bytes_per_s_per_direction * facts.switch_share * share / facts.share
        if link and facts.switch_share
        else None,
        switch_s=facts.switch_s,
        network=network,
        pod=network / cluster.oversubscription if network else None,
        network_adds_up=bool(network and cluster.network and cluster.network.adds_up),
        library=facts.library,
        is_bus=is_bus,
        chips_per_axis=facts.chips_per_axis,
        architecture=cluster.chip.architecture.lower().split()[0],
        link_hop_scale=1.0 if link_latency_s is None else link_latency_s / _link_hop(facts, is_bus=is_bus),
        network_hop_scale=hop_scale if network_latency_s is None else network_latency_s / _network_hop(facts),
    )
    if roads.link is not None and link is not None:
        rate = format_rate(link.bytes_per_s_per_direction)
        text = f"collectives inside an island reach {format_percent(share)} of {rate} ({link.name})"
        assumptions += (f"{text}, {_origin(link_share, facts, link)}",)
    return roads, assumptions + network_text


def _with_host(cluster: Cluster) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster, and if it has islands without a network: those of one host joined by its bus."""
    if cluster.num_islands == 1 or cluster.network is not None:
        return cluster, ()
    known = host_bus(cluster.chip.form_factor)
    if known is None or cluster.num_chips > known[0]:
        raise PlanError(
            f"the network between {cluster.num_islands} islands of {cluster.chip.name} is unknown: the chip's row has"
            " none. Say the rate of one chip's share, for example --network 100Gb/s, or name a cluster that is known"
        )
    chips, rate = known
    if cluster.chips_per_island == 1:
        link = cluster.scale_up or Link(cluster.chip.form_factor, rate)
        joined = Cluster(cluster.chip, cluster.num_chips, cluster.num_chips, link, None, name=cluster.name)
    else:
        joined = Cluster(
            cluster.chip,
            cluster.num_chips,
            cluster.chips_per_island,
            cluster.scale_up,
            Link(cluster.chip.form_factor, rate),
        )
    return joined, (
        f"up to {chips} {cluster.chip.name} stand in one host, joined by its bus ({cluster.chip.form_factor})",
    )


def _network(cluster: Cluster, network_share: float | None) -> tuple[float | None, float, tuple[str, ...]]:
    """Rate of one chip's share as collectives reach it, how much longer hops take, and what was assumed."""
    network = cluster.network
    if cluster.num_islands == 1 or network is None:
        return None, 1.0, ()
    facts = link_facts(network.name) if network.name.startswith("PCIe") else network_facts(network.name)
    share = next(each for each in (network_share, network.measured_share, facts.share) if each is not None)
    text = (
        f"collectives between islands reach {format_percent(share)} of {format_rate(network.bytes_per_s_per_direction)}"
    )
    found = [f"{text} a chip ({network.name}), {_origin(network_share, facts, network)}"]
    if cluster.chips_per_pod and cluster.oversubscription > 1:
        found.append(f"between pods of {cluster.chips_per_pod:,} chips 1/{cluster.oversubscription:g} of that")
    return network.bytes_per_s_per_direction * share, facts.hop_scale, tuple(found)


def _link_share(link: Link | None, facts: LinkFacts, told: float | None) -> float:
    if told is not None:
        return told
    if link is None:
        return 1.0
    if link.measured_share is not None:
        return link.measured_share
    return facts.share * (facts.without_peers if link.peer_to_peer is False else 1.0)


def _origin(told: float | None, facts: LinkFacts, link: Link) -> str:
    if told is not None:
        return "as calibrated or told"
    if link.measured_share is not None:
        return "as measured on this cluster"
    missing_peers = ", half of it without peer to peer" if link.peer_to_peer is False else ""
    return f"as published: {facts.source}{missing_peers}"


def _link_hop(facts: LinkFacts, *, is_bus: bool) -> float:
    if facts.library == "xla":
        return xla().link_hop_s
    algorithm, protocol = _RING_SIMPLE
    return (nccl().bus_hop_s if is_bus else nccl().link_hop_s)[algorithm][protocol]


def _network_hop(facts: LinkFacts) -> float:
    if facts.library == "xla":
        return xla().network_hop_s
    algorithm, protocol = _RING_SIMPLE
    return nccl().network_hop_s[algorithm][protocol]


def _axes(members: int, per_axis: int) -> int:
    axes = 1
    while members > per_axis**axes:
        axes += 1
    return axes


def _check(
    link_share: float | None, link_latency_s: float | None, network_share: float | None, network_latency_s: float | None
) -> None:
    wrong = [
        f"{what} is a share of the nominal rate, above 0 and at most 1, not {share:g}"
        for what, share in (("link_share", link_share), ("network_share", network_share))
        if share is not None and not 0 < share <= 1
    ]
    wrong += [
        f"{what} is seconds, at least 0 and below a second, not {format_duration(seconds) if seconds >= 0 else seconds}"
        for what, seconds in (("link_latency_s", link_latency_s), ("network_latency_s", network_latency_s))
        if seconds is not None and not 0 <= seconds < 1
    ]
    if wrong:
        raise PlanError("; ".join(wrong))
