from torchledger.machine import describe, get
from torchledger.view.machine import chip_screen, chips_table, here_screen
from torchledger.view.terminal import draw


def test_dense_and_sparse_are_in_one_unit():
    """A dense peak and its sparse figure stand in one row, both in TFLOP/s, with the reason below."""
    chip = get("h100")
    text = draw(chip_screen(chip, describe(chip)))
    row = next(line for line in text.splitlines() if line.startswith("bf16 peak"))
    assert row.split()[2:6] == ["989.4", "TFLOP/s", "1,979", "TFLOP/s"]
    assert chip.sparsity.reason in text


def test_nominal_bytes_are_decimal_and_reported_ones_binary():
    """80 GB is what the label says, 79.6 GiB what the driver does."""
    text = draw(chip_screen(get("h100"), describe(get("h100"))))
    assert "80 GB" in text
    assert "79.6 GiB" in text


def test_what_a_chip_lacks_is_not_unknown():
    """A V100 does not run BF16: that is known, and told apart from a missing row."""
    table = chips_table((get("v100-sxm2-32gb"),))
    row = dict(zip(table.titles, table.rows[0].cells, strict=True))
    assert row["bf16 dense"] == "none"
    assert row["fp8 dense"] == "unknown"


def test_a_machine_without_a_row_says_so():
    """The machine at hand is shown even where the catalog has no row for it."""
    assert "no row of the catalog" in draw(here_screen("Some CPU", (("cores", "2"),), None))
    assert "989.4 TFLOP/s" in draw(here_screen("NVIDIA H100 80GB HBM3", (), get("h100")))
