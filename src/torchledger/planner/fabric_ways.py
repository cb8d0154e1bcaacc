"""`Way`: one algorithm with one protocol for a collective, as seconds before the bytes and seconds for each of them.

Rings and trees as NCCL models them (src/graph/tuning.cc): of a ring of n ranks on k islands, 2·(n - 1) steps of an
all-reduce, or n - 1 of an all-gather or a reduce-scatter, of which k - 1 a turn wait for the network; its bandwidth is
that of its narrowest place, which between islands is all the network of the members in one. A double binary tree takes
logarithmically many hops over the network at less bandwidth (Sanders, Speck and Träff 2009). A switch that adds up
(NVLink SHARP) moves (n + 1)/n of the tensor per rank. On a torus both directions of a ring carry half of it each, and
slices are joined hierarchically: inside, between, inside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from torchledger.planner.fabric_facts import PROTOCOLS, nccl, xla
from torchledger.planner.fabric_group import Group
from torchledger.planner.fabric_roads import Roads

Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send"]
OPERATIONS: tuple[Operation, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send")

_FIRST_CORRECTED = 64  # bytes


@dataclass(frozen=True, slots=True)
class Way:
    """One way to do it.

    Attributes:
        algorithm: `ring`, `tree`, `switch`, `switch and tree`, `network sum`, `direct`, `torus`, `torus and network`.
        protocol: one of `PROTOCOLS`.
        latency_s: seconds before the first byte.
        byte_s: seconds for every byte of the collective.
        bus_bytes_per_s: the bandwidth that it runs at, of its narrowest place.
        sent_share: bytes that a rank sends over those of the collective.
        network_share: of those, what goes between islands.
        correction: of the bandwidth, at 64 bytes, 128 bytes ...; nothing: none.
    """

    algorithm: str
    protocol: str
    latency_s: float
    byte_s: float
    bus_bytes_per_s: float
    sent_share: float
    network_share: float
    correction: tuple[float, ...] = ()

    def seconds(self, num_bytes: float) -> float:
        """How long it takes."""
        if not self.correction:
            return self.latency_s + num_bytes * self.byte_s
        return self.latency_s + num_bytes * self.byte_s / _corrected(self.correction, num_bytes)


def ways(op: Operation, group: Group, pods: Group, roads: Roads, copies: int = 0) -> tuple[Way, ...]:
    """Every way that the library knows.

    Args:
        op: which collective.
        group: its ranks over islands.
        pods: its ranks over pods.
        roads: what they send over.
        copies: of an all-to-all, how many copies of a token it has, of which an island gets one; 0: all of its own.
    """
    if roads.library == "xla":
        return tuple(_torus(op, group, pods, roads))
    if op in {"send", "all_to_all"}:
        return (_direct(op, group, pods, roads, share_sent_once(group.num_domains, copies)),)
    return tuple(_nccl(op, group, pods, roads))


def _nccl(op: Operation, group: Group, pods: Group, roads: Roads) -> Iterator[Way]:
    for protocol in range(len(PROTOCOLS)):
        yield _ring(op, group, pods, roads, protocol)
        if op == "all_reduce" and group.num_domains > 1:
            yield _tree(group, pods, roads, protocol)
    if op == "all_reduce" and roads.switch is not None:
        if group.num_domains == 1:
            yield _switch(group, roads)
        elif group.least > 1:
            yield _switch_tree(group, pods, roads)
    if op == "all_reduce" and roads.network_adds_up and group.num_domains > 1:
        yield _network_sum(group, pods, roads)


def _ring(op: Operation, group: Group, pods: Group, roads: Roads, protocol: int) -> Way:
    n, k = group.size, group.num_domains
    facts = nccl()
    # of the whole tensor, what passes every place of the ring, and in how many steps
    turns = 2 if op == "all_reduce" else 1
    sent, steps = (1.0, n - 1) if op == "broadcast" else (turns * (n - 1) / n, turns * (n - 1))
    bus = _narrowest(group, pods, roads, sent=sent, turns=turns) * facts.ring_share[protocol]
    if protocol == 0:
        bus = min(bus, _ll_limit(group, roads))
    crossing = 0 if k == 1 else turns * (k - 1)
    inside = _hop(roads, "ring", protocol)
    between = 0.0
    if crossing:
        # a step inside an island waits for the host, which posts those between islands; with one rank on each island
        # nothing hides the hop
        inside = max(inside, facts.post_s[protocol])
        between = facts.network_hop_s["tree" if k == n else "ring"][protocol] * roads.network_hop_scale
    latency = (steps - crossing) * inside + crossing * between
    latency += facts.base_s["ring"][protocol]
    if op == "all_reduce" and crossing and PROTOCOLS[protocol] == "Simple":
        latency *= facts.plateau
    return Way("ring", PROTOCOLS[protocol], latency, sent / bus, bus, sent, _crossing_share(group))


def _tree(group: Group, pods: Group, roads: Roads, protocol: int) -> Way:
    facts = nccl()
    bus = _narrowest(group, pods, roads, sent=2.0, turns=2, crossing=_tree_crossing(group)) * facts.tree_share[protocol]
    if protocol == 0:
        bus = min(bus, _ll_limit(group, roads))
    hops = (group.per_domain - 1) * _hop(roads, "tree", protocol)
    hops += math.log2(group.num_domains) * facts.network_hop_s["tree"][protocol] * roads.network_hop_scale
    latency = facts.base_s["tree"][protocol] + 2 * hops
    correction = facts.tree_correction[protocol]
    # up to the parent and down to the children: twice the tensor passes every place
    return Way("tree", PROTOCOLS[protocol], latency, 2 / bus, bus, 2.0, _crossing_share(group), correction)


def _switch(group: Group, roads: Roads) -> Way:
    n = group.size
    assert roads.switch is not None
    sent = (n + 1) / n
    return Way("switch", "Simple", roads.switch_s * roads.link_hop_scale, sent / roads.switch, roads.switch, sent, 0.0)


def _switch_tree(group: Group, pods: Group, roads: Roads) -> Way:
    facts = nccl()
    n, k = group.size, group.num_domains
    bus = _narrowest(group, pods, roads, sent=2.0, turns=2, crossing=_tree_crossing(group)) * facts.switch_tree_share
    latency = roads.switch_s * roads.link_hop_scale
    latency += 2 * math.log2(k) * facts.switch_tree_hop_s * roads.network_hop_scale
    sent = 2 * (n - 1) / n
    return Way("switch and tree", "Simple", latency, sent / bus, bus, sent, _crossing_share(group))


def _network_sum(group: Group, pods: Group, roads: Roads) -> Way:
    """Sums in the network's switches: all of the tensor goes out of an island once and comes back once.

    Inside, its members share the tensor out and gather it again, which bounds it where that is slower.
    """
    facts = nccl()
    m = group.most
    bus = _narrowest(group, pods, roads, sent=2.0, turns=2, crossing=0.5) * facts.network_sum_share
    near = _hop(roads, "ring", PROTOCOLS.index("Simple"))
    latency = 2 * (min(1, m - 1) * near + (m - 1) * facts.network_sum_member_s)
    latency += facts.network_sum_hop_s * roads.network_hop_scale
    return Way("network sum", "Simple", latency, 2 / bus, bus, 2.0, 0.5 / m)


def share_sent_once(num_islands: int, copies: int) -> float:
    """Of what copies of tokens would cross the network, what does where an island gets one of a token's at most.

    Copies go to islands at random: of k, 1 - (1 - 1/n)^k of n islands get any, in place of k/n of them. Experts that
    are drawn without one coming twice spread a little further, routers that choose few islands less.

    >>> share_sent_once(8, 8) == 1 - (7 / 8) ** 8, share_sent_once(8, 1), share_sent_once(8, 0)
    (True, 1.0, 1.0)
    """
    n = num_islands
    return 1.0 if copies < 1 else (1 - (1 - 1 / n) ** copies) * n / copies


def _direct(op: Operation, group: Group, pods: Group, roads: Roads, once: float = 1.0) -> Way:
    """Every rank to the next one (`send`, over the group's slowest hop), or a part of its own to every other.

    Of the part that leaves an island `once` is the share that does: the rest of its copies are made behind the network,
    and travel inside, beside it (DeepSeek-V3, arXiv:2412.19437, section 3.2.2).
    """
    facts = nccl()
    n, simple = group.size, PROTOCOLS.index("Simple")
    base = facts.base_s["ring"][simple]
    far = facts.network_hop_s["ring"][simple] * roads.network_hop_scale
    near = _hop(roads, "ring", simple)
    if op == "send":
        if group.num_domains == 1:
            rate = 1 / _inside(1.0, 1, min(each for each in (roads.link, roads.peer) if each is not None), roads)
            return Way("direct", "Simple", base + near, 1 / rate, rate, 1.0, 0.0)
        rate = _out(pods, roads)
        return Way("direct", "Simple", base + far, 1 / rate, rate, 1.0, 1.0)
    away = (n - group.least) / n if group.num_domains > 1 else 0.0
    inside = (group.most - 1) / n
    within = roads.within(group.most)
    # what comes over the network once goes to all of its experts from the rank that it came to
    forwarded = away * (group.most - 1) / group.most if once < 1 else 0.0
    seconds = _inside(inside + forwarded, 1, within, roads) if within and inside else 0.0
    latency = base + (near if inside else 0.0)
    if away:
        away *= once
        seconds = max(seconds, away / _out_to_all(group, pods, roads))
        latency = base + far + (n - group.least - 1) * facts.post_s[0]
    sent = (n - 1) / n
    return Way("direct", "Simple", latency, seconds, sent / seconds, sent, away / sent)


def _torus(op: Operation, group: Group, pods: Group, roads: Roads) -> Iterator[Way]:
    """Rings of both directions along the axes of a torus; over several slices inside, between, inside."""
    n, k, m = group.size, group.num_domains, group.most
    hop_s, far_s = xla().link_hop_s * roads.link_hop_scale, xla().network_hop_s * roads.network_hop_scale
    within = roads.within(m, group.least) if m > 1 else None
    per_axis = min(m, roads.chips_per_axis or m)
    turns = 2 if op == "all_reduce" else 1
    if op == "send":
        rate = _out(pods, roads) if k > 1 else (roads.peer or roads.link or math.inf)
        yield Way("torus", "Simple", far_s if k > 1 else hop_s, 1 / rate, rate, 1.0, float(k > 1))
        return
    if op == "all_to_all":
        # in a ring of both directions a part travels a quarter of it on average
        inside = (m / n) * max(per_axis / 4, 1.0) / within if within else 0.0
        away = (n - group.least) / n if k > 1 else 0.0
        seconds = max(inside, away / _out_to_all(group, pods, roads) if away else 0.0)
        latency = far_s if away else hop_s * math.ceil(per_axis / 2)
        yield Way("torus", "Simple", latency, seconds, (n - 1) / n / seconds, (n - 1) / n, away * n / (n - 1))
        return
    inside = turns * (m - 1) / m
    between = turns * (k - 1) / k / m
    seconds = inside / within if within else 0.0
    latency = turns * hop_s * math.ceil(per_axis / 2) if within else 0.0
    if k > 1:
        seconds += between / _out(pods, roads)
        latency += turns * (k - 1) * far_s
    sent = inside + between
    yield Way(
        "torus and network" if k > 1 else "torus", "Simple", latency, seconds, sent / seconds, sent, between / sent
    )


def _narrowest(group: Group, pods: Group, roads: Roads, *, sent: float, turns: int, crossing: float = 1.0) -> float:
    """The bandwidth of a ring or tree: of the link, and of all members of an island (of a pod) together out of it.

    Args:
        group: over islands.
        pods: over pods.
        roads: what is sent over.
        sent: bytes that pass every place, over those of the tensor.
        turns: 2 for an all-reduce, 1 for half of one.
        crossing: of these bytes, the share that goes out of an island.
    """
    rates = []
    if group.most > 1 and (within := roads.within(group.most, group.least)) is not None:
        rates.append(sent / _inside(sent, turns, within, roads))
    if group.num_domains > 1:
        assert roads.network is not None
        rates.append(group.least * roads.network / crossing)
    if pods.num_domains > 1:
        assert roads.pod is not None
        rates.append(pods.least * roads.pod / crossing)
    return min(rates)


def _inside(sent: float, turns: int, rate: float, roads: Roads) -> float:
    """Seconds for a byte of the tensor inside an island: over the link, and what a chip copies and adds of its own."""
    return sent / rate + (turns / 2 / roads.local if roads.local else 0.0)


def _tree_crossing(group: Group) -> float:
    """Of the bytes of a tree, those that leave an island: of two, each is the root of one of both trees for half."""
    return 0.5 if group.num_domains == 2 else 1.0


def _out(pods: Group, roads: Roads) -> float:
    """The rate of one chip out of its island, to the next of its group: the last of a pod has all of its way out."""
    assert roads.network is not None
    assert roads.pod is not None
    return roads.network if pods.num_domains == 1 else min(roads.network, pods.least * roads.pod)


def _out_to_all(group: Group, pods: Group, roads: Roads) -> float:
    """The same to all of its group: out of a pod goes what is not for its own members."""
    assert roads.network is not None
    assert roads.pod is not None
    if pods.num_domains == 1:
        return roads.network
    return min(roads.network, roads.pod * (group.size - group.least) / (group.size - pods.least))


def _crossing_share(group: Group) -> float:
    """Of the bytes that ranks of a ring or tree send, those between islands: one rank of an island sends them out."""
    return group.num_domains / group.size if group.num_domains > 1 else 0.0


def _hop(roads: Roads, algorithm: str, protocol: int) -> float:
    hops: Callable[[str], tuple[float, float, float]] = (
        nccl().bus_hop_s.__getitem__ if roads.is_bus else nccl().link_hop_s.__getitem__
    )
    return hops(algorithm)[protocol] * roads.link_hop_scale


def _ll_limit(group: Group, roads: Roads) -> float:
    facts = nccl()
    if group.num_domains == 1:
        return facts.ll_limit.get(roads.architecture, facts.ll_limit["ampere"])
    return facts.ll_limit_2 if group.num_domains == 2 else facts.ll_limit_more


def _corrected(table: tuple[float, ...], num_bytes: float) -> float:
    """The table at so many bytes, straight between its powers of two, flat beyond."""
    place = math.log2(max(num_bytes, 1) / _FIRST_CORRECTED)
    if place <= 0:
        return table[0]
    if place >= len(table) - 1:
        return table[-1]
    low = int(place)
    return table[low] + (place - low) * (table[low + 1] - table[low])
