import pytest

from torchledger.machine import get, list_chips
from torchledger.planner import assumed_mfu

H100 = get("h100")


def test_a_chip_and_format_of_which_runs_are_known_has_its_own():
    """H100 differs by format, and from A100."""
    found = {form: assumed_mfu(H100, form) for form in ("bf16", "fp8")}
    assert found["bf16"].of == "on H100 SXM in bf16"
    assert found["bf16"].mfu > found["fp8"].mfu
    assert assumed_mfu(get("a100"), "bf16").mfu != found["bf16"].mfu


def test_fp16_stands_with_bf16_and_mxfp8_with_fp8_where_it_has_no_runs():
    """They have one peak; a format's own runs go first (GB200 in MXFP8)."""
    assert assumed_mfu(H100, "fp16") == assumed_mfu(H100, "bf16")
    assert assumed_mfu(H100, "mxfp8") == assumed_mfu(H100, "fp8")
    assert assumed_mfu(get("gb200"), "mxfp8").of.endswith("in mxfp8")


def test_an_unknown_chip_takes_the_format_and_an_unknown_format_all_runs():
    """It says so."""
    assert assumed_mfu(get("mi300x"), "bf16").of == "in bf16 on other chips"
    assert "none in tf32" in assumed_mfu(H100, "tf32").of


@pytest.mark.parametrize("form", ["fp32", "tf32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"])
def test_every_chip_and_format_has_a_share_with_its_runs_and_source(form):
    """A median inside its middle half, and a line that names runs and sources."""
    for chip in list_chips():
        found = assumed_mfu(chip, form)
        assert 0 < found.low <= found.mfu <= found.high < 1
        assert found.num_runs >= 4
        assert f"median of {found.num_runs} published runs" in found.text
        assert found.source in found.text
