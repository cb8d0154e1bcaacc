import math
import timeit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger import machine
from torchledger.machine import parse_cluster
from torchledger.planner.fabric import Fabric
from torchledger.planner.fabric_ways import OPERATIONS

A100S = Fabric.of(parse_cluster("a100x64"), link_share=0.8, network_share=0.9)
LINK, NETWORK = 0.8 * 300e9, 0.9 * 25e9  # of the row of the A100: NVLink 3, and 200 Gb/s a chip
GB = 10**9


@pytest.mark.parametrize(
    ("op", "sent"),
    [
        ("all_reduce", 2 * 7 / 8),
        ("all_gather", 7 / 8),
        ("reduce_scatter", 7 / 8),
        ("all_to_all", 7 / 8),
        ("broadcast", 1),
        ("send", 1),
    ],
)
def test_large_messages_move_at_the_bandwidth_of_the_link(op, sent):
    """A ring of 8 sends 2·7/8 of the tensor in an all-reduce, 7/8 in half of one; a send sends all of it."""
    expected = sent * 64 * GB / LINK
    assert A100S.seconds(op, 64 * GB, 8, 1) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("size", "stride", "bandwidth"),
    [
        (16, 1, 8 * NETWORK),  # two whole islands: 8·22.5 = 180 GB/s, less than the link's 240
        (8, 8, NETWORK),  # one rank of each of 8 islands
        (16, 4, 2 * NETWORK),  # two of each
        (32, 2, 4 * NETWORK),  # four of each
        (10, 1, 2 * NETWORK),  # 8 on one island, 2 on the next: their two shares of the network are the narrow place
    ],
)
def test_between_islands_a_ring_has_the_network_of_its_members(size, stride, bandwidth):
    """Every chip brings its own share of the network; the island with the fewest members is the narrow place."""
    expected = (size - 1) / size * 640 * GB / bandwidth
    assert A100S.seconds("all_gather", 640 * GB, size, stride) == pytest.approx(expected, rel=2e-3)


def test_a_small_message_takes_its_hops():
    """A ring of 8 inside an island: NCCL's base of 6.6 us and 7 or 14 hops of 0.6 us with its first protocol."""
    assert A100S.seconds("all_gather", 8, 8, 1) == pytest.approx(6.6e-6 + 7 * 0.6e-6, rel=1e-3)
    assert A100S.seconds("all_reduce", 8, 8, 1) == pytest.approx(6.6e-6 + 14 * 0.6e-6, rel=1e-3)


def test_between_islands_small_all_reduces_take_a_tree():
    """Over 64 islands a ring takes 126 hops over the network, a double binary tree 2·log2(64) = 12."""
    fabric = Fabric.of(parse_cluster("a100x512"))
    small, large = (fabric.explain("all_reduce", size, 64, 8) for size in (64 * 1024, 10 * GB))
    assert (small.algorithm, large.algorithm) == ("tree", "ring")
    assert small.latency_s == pytest.approx(6.8e-6 + 12 * 5e-6)


def test_an_all_reduce_in_the_switch_beats_the_ring_only_where_there_is_a_switch_that_adds():
    """H100s behind a switch reduce in it from 5 ranks up; two cards with a bridge, A100s and AMD's mesh do not."""
    h100 = Fabric.of(parse_cluster("h100x8"))
    assert h100.explain("all_reduce", GB, 8, 1).algorithm == "switch"
    assert h100.explain("all_reduce", GB, 2, 1).algorithm == "ring"
    assert h100.explain("all_gather", GB, 8, 1).algorithm == "ring"
    for other in ("h100-pcie x 2", "a100x8", "mi300x x8"):
        cluster = parse_cluster(other)
        assert Fabric.of(cluster).explain("all_reduce", GB, cluster.num_chips, 1).algorithm == "ring"


def test_two_chips_of_a_mesh_have_one_lane():
    """MI300X: 64 GB/s to one peer, 7·64 to all: a pair is 7 times slower than eight."""
    fabric = Fabric.of(parse_cluster("mi300xx8"), link_share=0.7)
    assert fabric.seconds("send", 64 * GB, 2, 1) == pytest.approx(64 * GB / (0.7 * 64e9), rel=1e-3)
    assert fabric.seconds("all_gather", 64 * GB, 2, 1) == pytest.approx(1 / 2 * 64 * GB / (0.7 * 64e9), rel=1e-3)
    assert fabric.seconds("all_gather", 64 * GB, 8, 1) == pytest.approx(7 / 8 * 64 * GB / (0.7 * 448e9), rel=1e-3)


def test_an_all_to_all_is_bound_by_what_leaves_the_island():
    """Of 16 ranks on two islands each sends half of its buffer out, over its own share of the network."""
    assert A100S.seconds("all_to_all", 16 * GB, 16, 1) == pytest.approx(8 / 16 * 16 * GB / NETWORK, rel=1e-3)


def test_a_send_takes_as_long_as_the_slowest_hop_of_the_group():
    """Pipeline ranks 4 apart: 2 of them share an island, 4 do not, and then a hop crosses the network."""
    assert A100S.seconds("send", GB, 2, 4) == pytest.approx(GB / LINK, rel=1e-2)
    assert A100S.seconds("send", GB, 4, 4) == pytest.approx(GB / NETWORK, rel=1e-2)


def test_what_runs_at_the_same_time_shares_the_roads():
    """Twice as much beside each other takes twice as long, but for the hops."""
    one, two = A100S.seconds("all_gather", GB, 8, 8), A100S.seconds("all_gather", GB, 8, 8, 2)
    assert two == pytest.approx(A100S.seconds("all_gather", 2 * GB, 8, 8))
    assert two > one


def test_a_group_of_one_takes_no_time():
    """There is nobody to send to."""
    assert all(A100S.seconds(op, GB, 1, 8) == 0 for op in OPERATIONS)
    assert A100S.explain("all_reduce", GB, 1, 1).seconds == 0


def test_between_pods_a_network_is_narrower():
    """1:7 beyond 256 chips: an all-to-all with peers in other pods only has a seventh, a ring in a pod all of it."""
    whole = parse_cluster("h100x1024")
    narrow = whole.joined(chips_per_pod=256, oversubscription=7)
    fabric, tapered = Fabric.of(whole), Fabric.of(narrow)
    assert tapered.seconds("all_gather", GB, 32, 8) == fabric.seconds("all_gather", GB, 32, 8)
    slower = tapered.seconds("all_to_all", 100 * GB, 4, 256) / fabric.seconds("all_to_all", 100 * GB, 4, 256)
    assert slower == pytest.approx(7, rel=1e-3)
    # 32 members of a pod have 32/7 shares of the way out, more than the one share of each island
    assert tapered.seconds("all_gather", GB, 128, 8) == fabric.seconds("all_gather", GB, 128, 8)


def test_fewer_network_cards_than_chips_are_a_smaller_share():
    """Four cards of 200 Gb/s for 8 chips take twice as long as eight."""
    four, eight = (Fabric.of(machine.named_cluster(name, 64)) for name in ("vtrain-a100", "dgx-a100"))
    ratio = four.seconds("all_gather", 100 * GB, 8, 8) / eight.seconds("all_gather", 100 * GB, 8, 8)
    assert ratio == pytest.approx(2, rel=1e-3)


@given(
    st.sampled_from(OPERATIONS),
    st.sampled_from([(2, 1), (8, 1), (10, 1), (16, 2), (8, 8), (64, 1), (3, 5)]),
    st.integers(1, 2**34),
    st.integers(0, 2**33),
    st.sampled_from(["a100x64", "h100x64", "mi300x x64", "v5e-64", "gb200x144", "b200x64"]),
)
def test_more_bytes_never_take_less_time(op, group, num_bytes, more, cluster):
    """Whatever algorithm is taken."""
    fabric = _fabric(cluster)
    assert fabric.seconds(op, num_bytes + more, *group) >= fabric.seconds(op, num_bytes, *group) * (1 - 1e-12)


@given(
    st.sampled_from(OPERATIONS),
    st.sampled_from([(2, 1), (8, 1), (10, 1), (16, 2), (8, 8), (64, 1), (3, 5), (1, 1)]),
    st.integers(0, 2**34),
    st.integers(1, 3),
    st.sampled_from(["a100x64", "h100x64", "mi300x x64", "v5e-64", "gb200x144", "b200x64"]),
)
def test_the_parts_add_up_to_the_seconds(op, group, num_bytes, concurrent, cluster):
    """What is explained is what is returned, and no fast path leaves out the fastest way."""
    fabric = _fabric(cluster)
    explained = fabric.explain(op, num_bytes, *group, concurrent)
    assert explained.seconds == pytest.approx(fabric.seconds(op, num_bytes, *group, concurrent), rel=1e-12)
    assert explained.link_bytes >= 0
    assert explained.network_bytes >= 0


@given(st.sampled_from(["all_gather", "reduce_scatter"]), st.integers(1, 6), st.integers(0, 33))
def test_more_ranks_of_a_ring_never_take_less_time(op, doublings, power):
    """Inside an island and with one rank on each island alike."""
    size = 2**doublings
    within, across = min(size, 8), size
    assert A100S.seconds(op, 2**power, within, 1) >= A100S.seconds(op, 2**power, max(within // 2, 1), 1)
    fabric = _fabric("a100x512")
    assert fabric.seconds(op, 2**power, across, 8) >= fabric.seconds(op, 2**power, max(across // 2, 1), 8)


def test_more_ranks_of_an_all_reduce_take_longer_on_one_tier():
    """2·(n - 1)/n rises with n, and so do the hops."""
    fabric = _fabric("a100x512")
    seconds = [fabric.seconds("all_reduce", GB, size, 8) for size in (2, 4, 8, 16, 32, 64)]
    assert seconds == sorted(seconds)


def test_two_halves_of_an_all_reduce_take_as_long_as_one():
    """A large all-reduce is a reduce-scatter and an all-gather."""
    halves = A100S.seconds("reduce_scatter", 64 * GB, 8, 1) + A100S.seconds("all_gather", 64 * GB, 8, 1)
    assert A100S.seconds("all_reduce", 64 * GB, 8, 1) == pytest.approx(halves, rel=1e-3)
    assert A100S.seconds("reduce_scatter", GB, 8, 8) == A100S.seconds("all_gather", GB, 8, 8)


def test_a_network_as_fast_as_the_link_makes_one_tier_of_two():
    """Chips on islands of 8 whose network is as fast as the link move large tensors as on one island."""
    cluster = parse_cluster("a100x64").joined(network="300GB/s")
    flat = parse_cluster("a100x64").joined(chips_per_island=64)
    shares = {"link_share": 0.8, "network_share": 0.8}
    two, one = Fabric.of(cluster, **shares), Fabric.of(flat, **shares)
    for size, stride in ((64, 1), (8, 8), (16, 4)):
        assert two.seconds("all_gather", 640 * GB, size, stride) == pytest.approx(
            one.seconds("all_gather", 640 * GB, size, stride), rel=1e-3
        )


def test_a_call_costs_a_few_microseconds():
    """The search asks for millions: what is known of a group is kept."""
    fabric = _fabric("h100x1024")
    fabric.seconds("all_gather", GB, 128, 8)
    best = min(timeit.repeat(lambda: fabric.seconds("all_gather", GB, 128, 8), number=2000, repeat=7)) / 2000
    assert best < 5e-6


def test_the_bandwidth_explained_is_that_of_the_bytes():
    """Bytes over bandwidth are the seconds for the bytes; `link_bytes` and `network_bytes` are what a ring sends."""
    explained = A100S.explain("all_gather", 64 * GB, 16, 1)
    assert explained.link_bytes + explained.network_bytes == pytest.approx(15 / 16 * 64 * GB)
    assert explained.network_bytes == pytest.approx(
        2 / 16 * 15 / 16 * 64 * GB
    )  # two of 16 ranks send out of their island
    assert explained.transfer_s == pytest.approx(15 / 16 * 64 * GB / explained.bus_bytes_per_s)
    assert explained.bus_bytes_per_s == pytest.approx(8 * NETWORK)
    assert math.isfinite(explained.latency_s)


_FABRICS: dict[str, Fabric] = {}


def _fabric(name: str) -> Fabric:
    if name not in _FABRICS:
        _FABRICS[name] = Fabric.of(parse_cluster(name))
    return _FABRICS[name]
