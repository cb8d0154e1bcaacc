"""The MFU that the napkin assumes is the median of published runs, and can be worked out again from their rows."""

import importlib.util
import tomllib
from importlib import resources
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SHIPPED = resources.files("torchledger.planner").joinpath("data/mfu.toml").read_text(encoding="utf-8")


def generator():
    spec = importlib.util.spec_from_file_location("assumed_mfu", HERE / "assumed_mfu.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_file_is_what_the_rows_give():
    """Every median, middle half, number of runs and source of `data/mfu.toml`, worked out anew."""
    assert tomllib.loads(generator().toml()) == tomllib.loads(SHIPPED)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("amp_bf16", "bf16"),
        ("fp16 mixed", "bf16"),
        ("FP8-CS", "fp8"),
        ("FP8-MX", "mxfp8"),
        ("NVFP4", "nvfp4"),
        ("", None),
    ],
)
def test_a_precision_is_read_as_the_format_of_its_matmuls(text, form):
    """Sources write it in many ways."""
    assert generator().number_format(text) == form
