import pytest

from torchledger import machine
from torchledger.machine import BadCluster, UnknownChip, named_cluster, read_cluster

FILE = """
chip = "h100"
num_chips = 1024
chips_per_island = 8
network = "200Gb/s"
network_name = "RoCE"
chips_per_pod = 256
oversubscription = 2
"""


@pytest.mark.parametrize("known", machine.list_clusters(), ids=lambda known: known.name)
def test_every_known_cluster_has_its_source_and_a_network(known):
    """A cluster without a network or without a source helps nobody."""
    assert known.source.startswith("https://")
    assert known.date
    assert known.confidence in {"high", "medium", "low"}
    assert known.notes
    assert known.cluster.network.bytes_per_s_per_direction > 0
    assert known.cluster.num_chips == known.cluster.chips_per_island


def test_cards_of_an_island_are_shared_by_its_chips():
    """Four cards of 200 Gb/s for 8 chips are 100 Gb/s a chip; four Omni-Path links of 100 are 50."""
    assert named_cluster("vtrain-a100", 512).network.bytes_per_s_per_direction == 4 * 200e9 / 8 / 8
    assert named_cluster("jean-zay-a100", 384).network.bytes_per_s_per_direction == 4 * 100e9 / 8 / 8
    assert named_cluster("dgx-a100", 1024).network.bytes_per_s_per_direction == 8 * 200e9 / 8 / 8


def test_a_known_cluster_has_the_size_that_is_asked_for():
    """So many chips; without a number, one island; never none."""
    assert named_cluster("vtrain-a100", 512).num_islands == 512 // 8
    assert named_cluster("gb200-nvl72").num_chips == 72
    with pytest.raises(BadCluster, match="at least one chip"):
        named_cluster("dgx-h100", 0)


def test_names_are_read_in_any_usual_spelling():
    """`Selene`, `DGX A100` and `dgx-a100` are one cluster."""
    assert named_cluster("Selene", 8) == named_cluster("DGX A100", 8) == named_cluster("dgx-a100", 8)
    with pytest.raises(BadCluster, match="no known cluster is named 'moon base'; known: dgx-a100"):
        named_cluster("moon base")


def test_a_measured_share_is_a_fact_of_the_cluster():
    """Jean Zay's all-reduce of 4 GB over 4 nodes took 1.5312 s on one card of a node: 40.5 of 100 Gb/s."""
    bus = 2 * 31 / 32 * 4e9 * 8 / 1.5312
    assert named_cluster("jean-zay-a100").network.measured_share == pytest.approx(bus / 100e9, abs=0.001)


def test_a_user_describes_a_cluster_in_a_file(tmp_path):
    """What the file says is in the cluster, and a number of chips that is asked for goes before the file's."""
    path = tmp_path / "ours.toml"
    path.write_text(FILE)
    cluster = read_cluster(path)
    assert (cluster.chip.key, cluster.num_chips, cluster.num_islands) == ("h100-sxm", 1024, 128)
    assert (cluster.network.name, cluster.network.bytes_per_s_per_direction) == ("RoCE", 25e9)
    assert (cluster.chips_per_pod, cluster.oversubscription) == (256, 2)
    assert read_cluster(path, 64).num_chips == 64


def test_a_network_that_adds_up_is_said(tmp_path):
    """Sums in the switches are a fact of a deployment, off unless said."""
    path = tmp_path / "ours.toml"
    path.write_text(FILE + "network_adds_up = true")
    assert read_cluster(path).network.adds_up
    path.write_text(FILE)
    assert not read_cluster(path).network.adds_up
    path.write_text(FILE + "network_adds_up = 3")
    with pytest.raises(BadCluster, match="network_adds_up: must be true or false"):
        read_cluster(path)


def test_what_a_file_leaves_out_is_as_the_chip_has_it(tmp_path):
    """A file with nothing but the chip's name is an island of it."""
    path = tmp_path / "ours.toml"
    path.write_text('chip = "a100"')
    assert read_cluster(path).network == machine.get("a100").network
    assert read_cluster(path).num_chips == 8


def test_every_mistake_of_a_file_is_told_at_once(tmp_path):
    """Each with its field."""
    path = tmp_path / "ours.toml"
    path.write_text('chips_per_island = 0\nnetwork = "fast"\noversubscription = 0.5\nnet = 3\nnotes = 7\n')
    with pytest.raises(BadCluster) as caught:
        read_cluster(path)
    for what in ("chip: is missing", "chips_per_island", "network: ", "oversubscription", "net: no such", "notes"):
        assert what in str(caught.value)


def test_a_file_that_is_no_toml_or_names_no_chip_is_refused(tmp_path):
    """With the reason."""
    path = tmp_path / "ours.toml"
    path.write_text("chip: h100")
    with pytest.raises(BadCluster, match="is no TOML"):
        read_cluster(path)
    path.write_text('chip = "warp core"')
    with pytest.raises(UnknownChip, match="warp core"):
        read_cluster(path)
