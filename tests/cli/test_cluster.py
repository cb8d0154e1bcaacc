import pytest

from torchledger.cli.cluster import read_on
from torchledger.machine import UnknownChip


def test_chips_known_clusters_and_files_are_read(tmp_path):
    """A chip and a number, a machine type and a number, a file of one's own."""
    assert read_on("h100x8").num_chips == 8
    assert read_on("h100", 16).num_chips == 16
    assert read_on("dgx-h100x16").num_chips == 16
    path = tmp_path / "ours.toml"
    path.write_text('chip = "h100"\nnum_chips = 64\nchips_per_island = 4\n', encoding="utf-8")
    assert read_on(str(path)).chips_per_island == 4


def test_an_unknown_name_is_told_as_a_chip():
    """What is neither chip nor cluster has the chip's message, with close names."""
    with pytest.raises(UnknownChip, match="h100-sxm"):
        read_on("h1oox8")
