from dataclasses import replace

import pytest

from torchledger.machine import Cluster, get, parse_cluster
from torchledger.planner.fabric import Fabric
from torchledger.planner.fabric_group import group_over
from torchledger.planner.fabric_ways import ways

GB = 10**9


def _all(fabric, op, size, stride):
    group = group_over(size, stride, fabric.roads.chips_per_island, fabric.num_chips)
    pods = group_over(size, stride, fabric.roads.chips_per_pod, fabric.num_chips)
    return {(way.algorithm, way.protocol): way for way in ways(op, group, pods, fabric.roads)}


def test_the_latency_of_a_ring_is_the_librarys():
    """16 ranks on 2 islands, all-gather, Simple: 8.4 us, 14 steps of 3.4 us inside, 1 of 14 us between."""
    ring = _all(Fabric.of(parse_cluster("a100x16")), "all_gather", 16, 1)["ring", "Simple"]
    assert ring.latency_s == pytest.approx(8.4e-6 + 14 * 3.4e-6 + 1 * 14e-6)


def test_the_latency_of_an_all_reduce_ring_between_islands_has_a_plateau():
    """Twice the steps, and 1.4 times all of it (tuning.cc: "plateau effect of ring")."""
    ring = _all(Fabric.of(parse_cluster("a100x16")), "all_reduce", 16, 1)["ring", "Simple"]
    assert ring.latency_s == pytest.approx(1.4 * (8.4e-6 + 28 * 3.4e-6 + 2 * 14e-6))


def test_the_latency_of_a_tree_is_logarithmic_in_islands():
    """64 ranks on 8 islands, LL128: 14 us, up and down 7 hops of 1.25 us inside and 3 of 8.5 us between."""
    tree = _all(Fabric.of(parse_cluster("a100x64")), "all_reduce", 64, 1)["tree", "LL128"]
    assert tree.latency_s == pytest.approx(14e-6 + 2 * (7 * 1.25e-6 + 3 * 8.5e-6))


def test_protocols_trade_bandwidth_for_latency():
    """LL has half of the bandwidth at most, LL128 0.92 of it, Simple all; and their hops rise in that order."""
    known = _all(Fabric.of(parse_cluster("a100x8"), link_share=0.5), "all_gather", 8, 1)
    bandwidths = [known["ring", protocol].bus_bytes_per_s for protocol in ("LL", "LL128", "Simple")]
    assert bandwidths == pytest.approx([0.5 * 0.5 * 300e9, 0.92 * 0.5 * 300e9, 0.5 * 300e9])
    latencies = [known["ring", protocol].latency_s for protocol in ("LL", "Simple", "LL128")]
    assert latencies[0] == min(latencies)


def test_a_tree_of_two_islands_sends_half_as_much_between_them():
    """Each island is the root of one of two trees: half of the tensor goes each way, where a ring sends it twice."""
    fabric = Fabric.of(parse_cluster("h100x16"))
    known = _all(fabric, "all_reduce", 2, 8)
    # 2/bus is the time of a byte: bus is 0.92 of twice the network's
    assert known["tree", "Simple"].bus_bytes_per_s == pytest.approx(0.92 * 2 * fabric.roads.network)
    assert known["ring", "Simple"].bus_bytes_per_s == pytest.approx(fabric.roads.network)


def test_adding_up_in_the_switch_moves_n_plus_1_over_n():
    """Every rank reads its part of everybody's tensor through the switch and writes it to everybody."""
    fabric = Fabric.of(parse_cluster("h100x8"))
    way = _all(fabric, "all_reduce", 8, 1)["switch", "Simple"]
    assert way.byte_s == pytest.approx(9 / 8 / fabric.roads.switch)


def test_sums_in_the_network_are_made_only_where_a_cluster_says_so():
    """With SHARP each island sends its tensor once instead of twice, at 0.85 of the bandwidth."""
    plain = parse_cluster("a100x64").joined(network="100Gb/s")
    adding = replace(plain, network=replace(plain.network, adds_up=True))
    ring, summed = (Fabric.of(each).explain("all_reduce", 64 * GB, 8, 8) for each in (plain, adding))
    assert (ring.algorithm, summed.algorithm) == ("ring", "network sum")
    assert ring.transfer_s / summed.transfer_s == pytest.approx(2 * 7 / 8 * 0.85)
    assert Fabric.of(adding).explain("all_gather", GB, 8, 8).algorithm == "ring"


def test_a_chips_own_copies_come_on_top_of_the_link():
    """A100: an all-reduce over n takes 2·(n - 1)/n of the tensor over 0.977 of the link, and all of it at 603 GB/s."""
    fabric = Fabric.of(parse_cluster("a100x8"))
    for size in (2, 4, 8):
        expected = 2 * (size - 1) / size / (0.977 * 300e9) + 1 / 603e9
        assert _all(fabric, "all_reduce", size, 1)["ring", "Simple"].byte_s == pytest.approx(expected)


def test_a_torus_has_both_directions_of_the_axes_that_a_group_fills():
    """v5e, 4 links of 50 GB/s at 0.9: one axis of 16 has two of them, the whole 16 x 16 has all four."""
    fabric = Fabric.of(parse_cluster("v5e-256"))
    assert fabric.explain("all_gather", GB, 16, 1).bus_bytes_per_s == pytest.approx(2 * 0.9 * 50e9)
    assert fabric.explain("all_gather", GB, 256, 1).bus_bytes_per_s == pytest.approx(4 * 0.9 * 50e9)
    assert fabric.explain("send", GB, 2, 1).bus_bytes_per_s == pytest.approx(0.9 * 50e9)


def test_an_all_to_all_on_a_ring_of_both_directions_takes_a_quarter_of_an_all_gather():
    """How to Scale Your Model, sharding, question 10: of as many bytes altogether."""
    fabric = Fabric.of(parse_cluster("v5e-256"))
    whole = 16 * GB
    gather, exchange = fabric.seconds("all_gather", whole, 16, 1), fabric.seconds("all_to_all", whole / 16, 16, 1)
    assert exchange / gather == pytest.approx(1 / 4 * 16 / 15, rel=1e-2)  # they leave out the 15/16 that we count


def test_slices_are_joined_inside_between_inside():
    """Two slices of 256: each chip sends a 256th of the tensor's half between them, and gathers the rest inside."""
    fabric = Fabric.of(Cluster.of(get("tpu v5e"), 512))
    inside = 255 / 256 * 64 * GB / (4 * 0.9 * 50e9)
    between = 1 / 2 * 64 * GB / 256 / (0.9 * 3.125e9)
    assert fabric.seconds("all_gather", 64 * GB, 512, 1) == pytest.approx(inside + between, rel=1e-3)
    assert fabric.explain("all_gather", GB, 512, 1).algorithm == "torus and network"


def test_a_token_crosses_to_an_island_once_where_its_copies_are_made_there():
    """8 copies over 4 islands of 8: 4 · (1 - (3/4)^8) / 8 of the bytes that would cross do; inside it is all of them.

    Over one island nothing changes, nor with one copy.
    """
    fabric = Fabric.of(parse_cluster("h100x32"), link_share=0.8, network_share=0.9)
    many, once = (fabric.seconds("all_to_all", 1e9, 32, 1, copies=copies) for copies in (0, 8))
    start = fabric.seconds("all_to_all", 0, 32, 1)
    assert (once - start) / (many - start) == pytest.approx(4 * (1 - 0.75**8) / 8)
    assert fabric.seconds("all_to_all", 1e9, 32, 1, copies=1) == many
    assert fabric.seconds("all_to_all", 1e9, 8, 1, copies=8) == fabric.seconds("all_to_all", 1e9, 8, 1)
    # as many copies as there are bytes for: what is handed on inside takes longer than what crosses
    inside = fabric.seconds("all_to_all", 1e9, 32, 1, copies=1000) - start
    assert inside == pytest.approx(
        fabric.seconds("all_to_all", 1e9, 8, 1, copies=8) * (7 / 32 + 24 / 32 * 7 / 8) / (7 / 8), rel=0.01
    )
