"""What a chip sustains: measured rates where there are any, shares of chips like it elsewhere."""

from dataclasses import replace

import pytest

from torchledger.machine import get
from torchledger.planner.chipset import attention_flops_per_s, chipset_of, num_multiprocessors
from torchledger.planner.constants import Constants
from torchledger.planner.errors import PlanError

HALF = Constants(matmul_share=0.5, memory_share=0.8, kernel_s=7e-6)


def peak(chip, number_format):
    return next(each for each in chip.peaks if each.number_format == number_format)


def test_products_run_at_a_share_of_the_largest_measured_one():
    """An H100's bf16 rate is half of the measured 794.5e12, its fp8 rate half of its own measured one."""
    chip = get("h100-sxm")
    found = chipset_of(chip, HALF, "flash-attention-2")
    assert found.rate("bf16") == pytest.approx(0.5 * peak(chip, "bf16").measured_flops_per_s)
    assert found.bytes_per_s == pytest.approx(0.8 * chip.memory_bandwidth)
    assert found.kernel_s == 7e-6


def test_a_format_that_nobody_measured_has_the_share_of_the_best_measured_one():
    """Of 1000 in one format 800 were measured: of 2000 in another, 1600 are expected."""
    chip = get("h100-sxm")
    peaks = tuple(
        replace(each, dense_flops_per_s=rate, measured_flops_per_s=measured)
        for each, rate, measured in ((peak(chip, "bf16"), 1000.0, 800.0), (peak(chip, "fp8"), 2000.0, None))
    )
    found = chipset_of(replace(chip, peaks=peaks), replace(HALF, matmul_share=1.0), "flash-attention-2")
    assert found.rate("bf16") == 800
    assert found.rate("fp8") == pytest.approx(2000 * 800 / 1000)


def test_a_chip_that_nobody_measured_has_the_share_of_its_architecture():
    """Ampere: 271.2 of 312 (87 %), Hopper 794.5 of 989.4 (80 %); an architecture of its own 80 %."""
    for architecture, share in (("Ampere", 0.87), ("Hopper", 0.80), ("Something", 0.80)):
        chip = get("h100-sxm")
        bare = replace(chip, architecture=architecture, peaks=(replace(peak(chip, "bf16"), measured_flops_per_s=None),))
        found = chipset_of(bare, replace(HALF, matmul_share=1.0), "flash-attention-2").rate("bf16")
        assert found == pytest.approx(share * peak(chip, "bf16").dense_flops_per_s)


def test_scaled_formats_run_at_their_elements_rate():
    """MXFP8 runs as FP8; a chip without FP4 has no rate for NVFP4, and nothing takes its place."""
    found = chipset_of(get("h100-sxm"), HALF, "flash-attention-2")
    assert found.rate("mxfp8") == found.rate("fp8") > found.rate("bf16")
    assert found.rate("nvfp4") is None
    assert chipset_of(get("b200"), HALF, "cudnn").rate("nvfp4") is not None


@pytest.mark.parametrize(
    ("key", "kernel", "forward", "backward"),
    [
        ("h100-sxm", "flash-attention-2", 0.339, 0.295),  # 335 of 989.4
        ("h100-sxm", "cudnn", 0.545, 0.472),  # 539 of 989.4
        ("a100-80gb", "cudnn", 0.667, 0.570),
        ("mi300x", "cudnn", 0.40, 0.34),  # an architecture without a row
    ],
)
def test_attention_runs_at_published_shares_of_the_peak(key, kernel, forward, backward):
    """Rates on long sequences are shares of the dense 16-bit peak, by kernel and architecture."""
    chip = get(key)
    dense = next(each for each in chip.peaks if each.number_format in {"fp16", "bf16"}).dense_flops_per_s
    found = attention_flops_per_s(chip, HALF, kernel)
    assert found == (pytest.approx(0.5 * forward * dense), pytest.approx(0.5 * backward * dense))


def test_an_attention_kernel_that_is_not_known_is_named():
    """The error has the kernels that are known, and no other entries of the file."""
    with pytest.raises(PlanError, match=r"'flesh' is not known; known are .*cudnn") as error:
        attention_flops_per_s(get("h100-sxm"), HALF, "flesh")
    assert "ramp" not in str(error.value)


def test_unknown_bandwidth_is_an_error():
    """Seconds of what moves bytes cannot be made up."""
    with pytest.raises(PlanError, match="memory bandwidth of H100 SXM is not known; give it"):
        chipset_of(replace(get("h100-sxm"), memory_bandwidth=None), HALF, "cudnn")


def test_multiprocessors_are_the_data_sheets():
    """132 on an H100 SXM, 114 on its PCIe card, 108 on an A100; unknown ones count as one smooth unit."""
    found = [num_multiprocessors(get(each)) for each in ("h100-sxm", "h100-pcie", "a100-80gb")]
    assert found == [132, 114, 108]
    assert num_multiprocessors(replace(get("h100-sxm"), key="mine", family="mine")) == 1
