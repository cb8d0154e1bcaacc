import pytest

from torchledger import machine
from torchledger.machine import parse_cluster
from torchledger.planner.errors import PlanError
from torchledger.planner.fabric import Fabric

GB = 10**9


def test_what_is_not_told_is_what_was_published_and_is_said():
    """The shares are named among the assumptions, with their source; those that were told say so."""
    assumed = Fabric.of(parse_cluster("h100x64")).assumptions
    assert "reach 81.7 % of 450 GB/s (NVLink 4), as published: ML Engineering" in assumed[0]
    assert "reach 90 % of 50 GB/s a chip" in assumed[1]
    told = Fabric.of(parse_cluster("h100x64"), link_share=0.5, network_share=0.4).assumptions
    assert told == (
        "collectives inside an island reach 50 % of 450 GB/s (NVLink 4), as calibrated or told",
        "collectives between islands reach 40 % of 50 GB/s a chip (typical network), as calibrated or told",
    )


def test_one_island_asks_for_no_network():
    """Nothing is assumed of it."""
    fabric = Fabric.of(parse_cluster("h100x8"))
    assert fabric.roads.network is None
    assert len(fabric.assumptions) == 1


def test_what_was_measured_on_the_very_cluster_goes_before_its_kind():
    """Jean Zay's Omni-Path reached 0.4 of its rate; a share that is told goes before that."""
    cluster = machine.named_cluster("jean-zay-a100", 64)
    assert Fabric.of(cluster).roads.network == pytest.approx(0.405 * 50e9 / 8)
    assert "as measured on this cluster" in Fabric.of(cluster).assumptions[1]
    assert Fabric.of(cluster, network_share=0.5).roads.network == pytest.approx(0.5 * 50e9 / 8)


def test_latencies_that_are_told_scale_all_hops():
    """Twice the hop of the Simple protocol makes every protocol's hops twice as long; nothing else changes."""
    cluster = parse_cluster("a100x64")
    default, slow = Fabric.of(cluster), Fabric.of(cluster, link_latency_s=2 * 3.4e-6, network_latency_s=2 * 14e-6)
    for size, stride, hops in ((8, 1, 7 * 0.6e-6), (8, 8, 7 * 5e-6)):
        assert slow.seconds("all_gather", 8, size, stride) - default.seconds("all_gather", 8, size, stride) == (
            pytest.approx(hops, rel=1e-6)
        )


def test_a_share_that_is_told_holds_for_the_switch_too():
    """Half the ring's share is half of what the switch reaches."""
    cluster = parse_cluster("h100x8")
    whole, half = Fabric.of(cluster), Fabric.of(cluster, link_share=0.817 / 2)
    assert half.roads.switch == pytest.approx(whole.roads.switch / 2)


@pytest.mark.parametrize("name", ["4090x4", "a6000x4", "l40s x 8", "a100-pcie x 8"])
def test_cards_of_one_host_are_joined_by_its_bus(name):
    """No row has a network for them; up to eight stand in one host, and the answer says that this was assumed."""
    cluster = parse_cluster(name)
    fabric = Fabric.of(cluster)
    assert fabric.seconds("all_reduce", GB, cluster.num_chips, 1) > 0
    assert "stand in one host, joined by its bus (PCIe 4)" in fabric.assumptions[0]


def test_cards_without_peer_to_peer_are_slower():
    """Their bytes go through host memory."""
    with_peers, without = (Fabric.of(parse_cluster(name)) for name in ("l40s x 4", "4090 x 4"))
    assert without.seconds("all_gather", GB, 4, 1) > 1.5 * with_peers.seconds("all_gather", GB, 4, 1)


@pytest.mark.parametrize("name", ["4090x16", "v6e-512", "m1 x 2"])
def test_a_network_that_nobody_told_is_asked_for(name):
    """With what to write."""
    with pytest.raises(PlanError, match=r"network between .* is unknown.*--network 100Gb/s"):
        Fabric.of(parse_cluster(name))
    assert Fabric.of(parse_cluster(name).joined(network="100Gb/s")).roads.network == pytest.approx(0.9 * 12.5e9)


def test_every_share_or_latency_that_cannot_be_is_told_at_once():
    """A share above one, a share of nothing, a negative latency, a latency of seconds."""
    with pytest.raises(PlanError) as caught:
        Fabric.of(parse_cluster("a100x16"), link_share=1.2, network_share=0, link_latency_s=-1, network_latency_s=3)
    for what in ("link_share", "network_share", "link_latency_s", "network_latency_s"):
        assert what in str(caught.value)


@pytest.mark.parametrize("chip", [each for each in machine.list_chips() if each.network], ids=lambda chip: chip.key)
def test_every_chip_with_a_network_has_a_fabric(chip):
    """Two islands and a chip more: all operations take some time, and a larger tensor more."""
    cluster = machine.Cluster.of(chip, 2 * (chip.chips_per_island or 1) + 1)
    fabric = Fabric.of(cluster)
    for op in ("all_reduce", "all_gather", "all_to_all", "send"):
        assert 0 < fabric.seconds(op, GB, cluster.num_chips, 1) < fabric.seconds(op, 2 * GB, cluster.num_chips, 1)
