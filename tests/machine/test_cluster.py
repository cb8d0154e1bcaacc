import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.machine import BadCluster, Cluster, MachineError, NoPeak, UnknownChip, get, parse_cluster


@pytest.mark.parametrize(
    ("text", "key", "num_chips"),
    [
        ("h100x1024", "h100-sxm", 1024),
        ("h100x8", "h100-sxm", 8),
        ("8xh100", "h100-sxm", 8),
        ("8 x H100", "h100-sxm", 8),
        ("8 × H100", "h100-sxm", 8),
        ("1024 H100", "h100-sxm", 1024),
        ("1,024 H100", "h100-sxm", 1024),
        ("16k H100", "h100-sxm", 16_000),
        ("h100:8", "h100-sxm", 8),
        ("h100*8", "h100-sxm", 8),
        ("h100", "h100-sxm", 1),
        (" h100 ", "h100-sxm", 1),
        ("A100-SXM4-40GB x 64", "a100-sxm-40gb", 64),
        ("4x H100 PCIe", "h100-pcie", 4),
        ("mi300x8", "mi300x", 8),
        ("mi300xx8", "mi300x", 8),
        ("8xmi300x", "mi300x", 8),
        ("4090", "rtx-4090", 1),
        ("4090x2", "rtx-4090", 2),
        ("2x4090", "rtx-4090", 2),
        ("1x4090", "rtx-4090", 1),
        ("tpu v4 x 16", "tpu-v4", 16),
    ],
)
def test_the_usual_ways_to_write_a_cluster(text, key, num_chips):
    """A count stands before or after the name; a name that ends in x or is a number is no trap."""
    cluster = parse_cluster(text)
    assert (cluster.chip.key, cluster.num_chips) == (key, num_chips)


@pytest.mark.parametrize(
    ("text", "key", "num_chips"),
    [
        ("v4-4096", "tpu-v4", 4096 // 2),
        ("tpu-v5p-8", "tpu-v5p", 8 // 2),
        ("v3-32", "tpu-v3", 32 // 2),
        ("v5e-256", "tpu-v5e", 256),
        ("v5litepod-256", "tpu-v5e", 256),
        ("v6e-64", "tpu-v6e", 64),
    ],
)
def test_a_slice_name_counts_cores_or_chips(text, key, num_chips):
    """v3, v4 and v5p slices are named by cores, two to a chip; v5e and v6e by chips."""
    cluster = parse_cluster(text)
    assert (cluster.chip.key, cluster.num_chips) == (key, num_chips)


def test_half_a_chip_is_no_slice():
    """An odd number of cores is a mistake."""
    with pytest.raises(BadCluster, match="counts cores, 2 to a chip"):
        parse_cluster("v4-7")


def test_islands_are_filled_one_after_the_other():
    """1,024 H100s are 128 islands of 8; 100 GB200s are two racks, the second not full."""
    cluster = parse_cluster("h100x1024")
    assert (cluster.chips_per_island, cluster.num_islands) == (8, 1024 // 8)
    assert parse_cluster("gb200x100").num_islands == 2
    assert cluster.scale_up == get("h100").scale_up
    assert cluster.network == get("h100").network


def test_the_peaks_of_a_cluster_add_up():
    """1,024 chips do 1,024 times what one does, and a format that one lacks none has."""
    assert parse_cluster("h100x1024").peak("bf16") == 1024 * 989.4e12
    with pytest.raises(NoPeak):
        parse_cluster("v100x8").peak("bf16")


def test_a_deployment_says_what_the_chip_cannot_know():
    """The network of one chip, the size of an island and of a pod are facts of the cluster, told over the row's."""
    cluster = parse_cluster("h100x1024").joined(network="200Gb/s", chips_per_pod=256, oversubscription=2)
    assert cluster.network.bytes_per_s_per_direction == 200e9 / 8
    assert (cluster.chips_per_island, cluster.chips_per_pod, cluster.oversubscription) == (8, 256, 2)
    assert cluster.joined(chips_per_island=4).num_islands == 1024 // 4
    assert cluster.joined() == cluster


def test_every_mistake_of_a_deployment_is_told_at_once():
    """A network that is no rate, an island of nothing and a factor below one are three mistakes."""
    with pytest.raises(BadCluster) as caught:
        parse_cluster("h100x8").joined(network="fast", chips_per_island=0, oversubscription=0.5)
    for what in ("network", "chips per island: at least one", "oversubscription: at least 1"):
        assert what in str(caught.value)
    with pytest.raises(BadCluster, match="moves nothing"):
        parse_cluster("h100x8").joined(network="0Gb/s")


@pytest.mark.parametrize("text", ["h100x0", "0xh100", "h100x1.5"])
def test_a_count_is_a_whole_number_above_zero(text):
    """No chips, or a part of one, make no cluster."""
    with pytest.raises(BadCluster):
        parse_cluster(text)


def test_two_numbers_that_are_both_names_are_ambiguous():
    """3090x4090 may be either; the message lists the readings."""
    with pytest.raises(BadCluster, match="may be 4090 of '3090' or 3090 of '4090'"):
        parse_cluster("3090x4090")


@pytest.mark.parametrize("text", ["", "8", "foox8", "8xfoo", "h100-sxm-extra x8"])
def test_an_unknown_chip_stays_unknown_in_a_cluster(text):
    """A count does not make a name known."""
    with pytest.raises(UnknownChip):
        parse_cluster(text)


def test_an_ambiguous_chip_stays_ambiguous_in_a_cluster():
    """The candidates are listed with a count as without."""
    with pytest.raises(UnknownChip, match="fits several chips"):
        parse_cluster("8x A100 39 GiB")


@given(st.integers(1, 10**6), st.sampled_from(["h100", "a100-40gb", "mi300x", "tpu-v5p", "gb200", "4090"]))
def test_count_first_and_count_last_mean_the_same(count, name):
    """`8xNAME`, `8 NAME`, `NAME:8` and the constructor agree."""
    expected = Cluster.of(get(name), count)
    assert parse_cluster(f"{count}x{name}") == parse_cluster(f"{count} {name}") == expected
    assert parse_cluster(f"{name}:{count}") == expected


@given(st.text(max_size=20))
def test_no_text_breaks_the_reader(text):
    """Whatever is typed is a cluster or a named error."""
    try:
        num_chips = parse_cluster(text).num_chips
    except MachineError:
        return
    assert num_chips >= 1
