"""The data files against the collection they were made from, and every spelling of a GPU in the measurements."""

import csv
from pathlib import Path

import pytest

from torchledger import machine

SHARED = Path(__file__).parents[2] / "../shared/data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the collection lies outside the repository")

# Column `gpu` of measured_throughput.csv and measured_vtrain_single_node.csv, and of measured_memory.csv.
SPELLINGS = {
    "H100 SXM 80GB": "h100-sxm",
    "A100 SXM 80GB": "a100-sxm-80gb",
    "A100 SXM 40GB": "a100-sxm-40gb",
    "GB300": "gb300",
    "GB200": "gb200",
    "B300": "b300-sxm",
    "B200": "b200-sxm",
    "H100 SXM 96GB HBM2e 500W (Grand Teton)": "h100-sxm-96gb-hbm2e",
    "H200 SXM": "h200-sxm",
    "TPU v4": "tpu-v4",
    "V100": "v100-sxm2-32gb",
    "TPU v3": "tpu-v3",
    "H800": "h800-sxm",
    "L40S": "l40s",
    "MI300X": "mi300x",
    "MI325X": "mi325x",
    "H100 96GB HBM2e": "h100-sxm-96gb-hbm2e",
    "H200": "h200-sxm",
    "H100 95.04 GiB": "h100-sxm-96gb-hbm2e",
    "H100 95 GiB": "h100-sxm-96gb-hbm2e",
    "GB200 184 GiB": "gb200",
    "T4 14.56 GiB": "t4",
    "H100": "h100-sxm",
    "H100 80GB": "h100-sxm",
    "A10G": "a10g",
    "A100-SXM4-40GB": "a100-sxm-40gb",
    "A100": "a100-sxm-80gb",
    "1x4090": "rtx-4090",
    "8xA100": "a100-sxm-80gb",
    "A100 80GB": "a100-sxm-80gb",
}

# Cells of the same columns that name no chip.
NOT_NAMES = (
    "see doc",
    "as above",
    "not recorded; 8.125 MiB cuBLAS workspace => not sm90/100/120",
)

# What torch.cuda.get_device_name() and its ROCm twin say.
DEVICE_NAMES = {
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
    "NVIDIA A100-SXM4-40GB": "a100-sxm-40gb",
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA A800-SXM4-80GB": "a800-sxm-80gb",
    "NVIDIA A10": "a10",
    "NVIDIA A10G": "a10g",
    "NVIDIA A30": "a30",
    "NVIDIA A40": "a40",
    "NVIDIA RTX A6000": "rtx-a6000",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA H100 NVL": "h100-nvl",
    "NVIDIA H200": "h200-sxm",
    "NVIDIA H200 NVL": "h200-nvl",
    "NVIDIA H800": "h800-sxm",
    "NVIDIA H20": "h20",
    "NVIDIA GH200 480GB": "gh200-96gb",
    "NVIDIA GH200 144G HBM3e": "gh200-144gb",
    "NVIDIA B200": "b200-sxm",
    "NVIDIA GB200": "gb200",
    "NVIDIA B300 SXM6 AC": "b300-sxm",
    "NVIDIA GB300": "gb300",
    "NVIDIA L4": "l4",
    "NVIDIA L40": "l40",
    "NVIDIA L40S": "l40s",
    "NVIDIA GeForce RTX 3090": "rtx-3090",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "NVIDIA GeForce RTX 5090": "rtx-5090",
    "Tesla V100-SXM2-16GB": "v100-sxm2-16gb",
    "Tesla V100-SXM2-32GB": "v100-sxm2-32gb",
    "Tesla V100-PCIE-16GB": "v100-pcie-16gb",
    "Tesla T4": "t4",
    "AMD Instinct MI250X": "mi250x",
    "AMD Instinct MI300X": "mi300x",
    "Apple M2 Max": "apple-m2-max",
}


@pytest.mark.parametrize(("spelling", "key"), SPELLINGS.items())
def test_every_spelling_of_the_measurements_resolves(spelling, key):
    """A GPU is found however the published tables spell it."""
    assert machine.get(spelling).key == key
    assert machine.parse_cluster(spelling).chip.key == key


@pytest.mark.parametrize("text", NOT_NAMES)
def test_a_cell_that_names_no_chip_is_unknown(text):
    """What is no name gives an error, never a default."""
    with pytest.raises(machine.UnknownChip):
        machine.get(text)


@needs_shared
@pytest.mark.parametrize("file", ["measured_throughput.csv", "measured_memory.csv", "measured_vtrain_single_node.csv"])
def test_the_lists_above_are_complete(file):
    """Every cell of the column is in one of the two lists."""
    with (SHARED / file).open(newline="") as lines:
        cells = {row["gpu"] for row in csv.DictReader(lines)}
    assert cells
    assert cells <= SPELLINGS.keys() | set(NOT_NAMES)


@pytest.mark.parametrize(("name", "key"), DEVICE_NAMES.items())
def test_every_device_name_matches(name, key):
    """What the driver calls the device finds the right chip."""
    found = machine.match(name)
    assert found is not None
    assert found.key == key


def _same(found: float | None, cell: str, scale: float = 1.0) -> bool:
    if not cell or found is None:
        return not cell and found is None
    return found == pytest.approx(float(cell) * scale, rel=1e-12)


# Facts that the collection has not, with their source in the row's notes.
NETWORK_BESIDE_THE_COLLECTION = {"tpu-v4", "tpu-v5e", "tpu-v5p"}
MEMORY_BESIDE_THE_COLLECTION = {"h100-sxm-96gb-hbm2e"}


@needs_shared
def test_every_number_of_the_collection_is_in_the_catalog():
    """The data files say what the collection says, row by row and to the last digit."""
    with (SHARED / "accelerators.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    for row in rows:
        chip = machine.get(row["name"])
        peaks = {peak.number_format: peak for peak in chip.peaks}
        for fmt in ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8"):
            dense = peaks[fmt].dense_flops_per_s if fmt in peaks else None
            assert _same(dense, row["int8_tops" if fmt == "int8" else f"{fmt}_tflops"], 1e12), (chip.key, fmt)
        best = peaks["bf16"].measured_flops_per_s if "bf16" in peaks else None
        link = chip.scale_up.bytes_per_s_per_direction if chip.scale_up else None
        network = chip.network.bytes_per_s_per_direction if chip.network else None
        assert _same(best, row["measured_max_matmul_bf16_tflops"], 1e12), chip.key
        assert _same(link, row["scaleup_gb_s_per_direction"], 1e9), chip.key
        if chip.key in NETWORK_BESIDE_THE_COLLECTION:
            assert not row["typical_network_gbit_s_per_accelerator"]
            assert "network:" in chip.notes
        else:
            assert _same(network, row["typical_network_gbit_s_per_accelerator"], 1e9 / 8), chip.key
        assert _same(chip.memory_bytes_nominal, row["mem_bytes_nominal"]), chip.key
        if chip.key in MEMORY_BESIDE_THE_COLLECTION:
            assert not row["mem_reported_mib"]
            assert "memory as its logs have it" in chip.notes
        else:
            assert _same(chip.memory_bytes_reported, row["mem_reported_mib"], 2**20), chip.key
        assert _same(chip.memory_bandwidth, row["mem_bw_gb_s"], 1e9), chip.key
        assert _same(chip.chips_per_island, row["scaleup_domain_size"]), chip.key
        assert _same(chip.tdp_w, row["tdp_w"]), chip.key
        assert _same(chip.year, row["year"]), chip.key
        for field in ("name", "vendor", "architecture", "form_factor", "confidence", "source"):
            assert getattr(chip, field) == row[field], chip.key
        assert chip.notes.startswith(row["notes"]), chip.key
    assert {chip.name for chip in machine.list_chips()} == {row["name"] for row in rows} | {"A10G"}


@pytest.mark.parametrize("chip", machine.list_chips(), ids=lambda chip: chip.key)
def test_every_row_has_its_provenance(chip):
    """A fact without a source, a date and a confidence is no fact."""
    assert chip.source.startswith("https://") or (chip.source == "derived" and chip.key == "generic-avx2-core")
    assert chip.date == "2026-11-29"
    assert chip.confidence in {"high", "medium", "low"}
    assert bool(chip.measured_source) == any(peak.measured_flops_per_s for peak in chip.peaks)


@pytest.mark.parametrize("chip", machine.list_chips(), ids=lambda chip: chip.key)
def test_every_row_is_within_reason(chip):
    """No measured matmul beats the dense peak, and no driver reports more memory than the printed number of GiB."""
    for peak in chip.peaks:
        assert peak.measured_flops_per_s is None or peak.measured_flops_per_s < peak.dense_flops_per_s
        assert peak.sparse_flops_per_s is None or peak.sparse_flops_per_s > peak.dense_flops_per_s
    if chip.memory_bytes_reported is not None:
        share = chip.memory_bytes_reported / 2**30 / (chip.memory_bytes_nominal / 1e9)
        assert 0.9 < share <= 1
