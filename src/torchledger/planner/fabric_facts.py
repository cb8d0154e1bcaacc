"""What collectives reach over links and how long hops take, read from `data/links.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Any

#: The library's protocols, in the order of every table of three: flags beside 4 bytes, flags beside 120 bytes, none.
PROTOCOLS: tuple[str, ...] = ("LL", "LL128", "Simple")

Three = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """What is known of a kind of link or network.

    Attributes:
        share: of its nominal rate, what a ring of large messages sustains.
        local_bytes_per_s: what a chip copies and adds of its own meanwhile, of an all-reduce all of the tensor;
            nothing: it is in the share.
        switch_share: the share for an all-reduce in the switch; nothing: the switch does not add up.
        switch_s: seconds that one takes before its bytes.
        without_peers: of the share, what is left where chips go through host memory.
        hop_scale: of a network, how many times longer its hops take than the library expects.
        library: whose algorithms run over it, "nccl" or "xla".
        chips_per_axis: of a torus, how many chips stand along an axis; nothing: it is no torus.
        source: where the figures come from.
    """

    share: float
    local_bytes_per_s: float | None = None
    switch_share: float | None = None
    switch_s: float = 0.0
    without_peers: float = 1.0
    hop_scale: float = 1.0
    library: str = "nccl"
    chips_per_axis: int | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class Nccl:
    """NCCL's model of its own algorithms (src/graph/tuning.cc), one value for each of `PROTOCOLS`.

    Attributes:
        base_s: seconds of any collective, by algorithm (`ring`, `tree`).
        link_hop_s, bus_hop_s, network_hop_s: seconds of a hop over NVLink, PCIe and the network, by algorithm.
        switch_tree_hop_s: seconds of a hop of a tree over the network between islands that add up in their switch.
        network_sum_hop_s, network_sum_member_s: seconds of an all-reduce in the network's switches, and for each
            further member of an island.
        network_sum_share: of the bandwidth that one reaches.
        post_s: seconds that a step of a ring over the network costs the host.
        plateau: what the latency of an all-reduce ring over several islands is multiplied with (Simple).
        ring_share, tree_share: of the bandwidth.
        switch_tree_share: of the ring's bandwidth, that of a tree between such islands.
        ll_limit: bytes per second of the first protocol inside an island, by architecture.
        ll_limit_2, ll_limit_more: over two islands, over more.
        tree_correction: what the tree's bandwidth is multiplied with at 64 bytes, 128 bytes ...
    """

    base_s: Mapping[str, Three]
    link_hop_s: Mapping[str, Three]
    bus_hop_s: Mapping[str, Three]
    network_hop_s: Mapping[str, Three]
    switch_tree_hop_s: float
    network_sum_hop_s: float
    network_sum_member_s: float
    network_sum_share: float
    post_s: Three
    plateau: float
    ring_share: Three
    tree_share: Three
    switch_tree_share: float
    ll_limit: Mapping[str, float]
    ll_limit_2: float
    ll_limit_more: float
    tree_correction: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Xla:
    """Seconds of a hop between neighbours of a torus, and between slices."""

    link_hop_s: float
    network_hop_s: float


def link_facts(name: str) -> LinkFacts:
    """Of the link of this name: those of the longest known name that it starts with.

    >>> link_facts("NVLink 4 bridge (2 GPUs)").switch_share is None  # no switch
    True
    >>> link_facts("NVLink 4 (reduced)") == link_facts("NVLink 4")
    True
    """
    return _facts("link", name)


def network_facts(name: str) -> LinkFacts:
    """Of the network of this name, likewise."""
    return _facts("network", name)


@cache
def nccl() -> Nccl:
    """NCCL's constants."""
    table = _tables()["library"]["nccl"]
    values: dict[str, Any] = {name: table[name] for name in (field.name for field in fields(Nccl))}
    for name in ("base_s", "link_hop_s", "bus_hop_s", "network_hop_s"):
        values[name] = {algorithm: tuple(three) for algorithm, three in table[name].items()}
    for name in ("post_s", "ring_share", "tree_share"):
        values[name] = tuple(table[name])
    values["tree_correction"] = tuple(tuple(row) for row in table["tree_correction"])
    return Nccl(**values)


@cache
def xla() -> Xla:
    """XLA's constants."""
    table = _tables()["library"]["xla"]
    return Xla(table["link_hop_s"], table["network_hop_s"])


def host_bus(form_factor: str) -> tuple[int, float] | None:
    """(chips of a host, bytes per second of one chip's bus) for cards of this form factor; nothing if it is no card.

    >>> host_bus("PCIe 4")
    (8, 32000000000.0)
    """
    table = _tables()["host"]
    rate = table["bytes_per_s"].get(form_factor)
    return None if rate is None else (table["chips"], rate)


@cache
def _facts(kind: str, name: str) -> LinkFacts:
    rows = _tables()[kind].values()
    fitting = [row for row in rows if name.lower().startswith(row.get("name", "\0").lower())]
    row = max(fitting, key=lambda each: len(each["name"]), default=_tables()[kind]["default"])
    return LinkFacts(**{key: value for key, value in row.items() if key not in {"name", "date"}})


@cache
def _tables() -> dict[str, Any]:
    text = resources.files("torchledger.planner").joinpath("data/links.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
