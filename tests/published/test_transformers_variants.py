"""Every switch of every architecture's config, against what transformers builds from it."""

import json
from pathlib import Path

import pytest

from torchledger.formula.parameters import num_parameters
from torchledger.spec.huggingface import from_config, known_model_types

ROWS = json.loads(Path(__file__).with_name("transformers_variants.json").read_text(encoding="utf-8"))["variants"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: json.dumps(row["config"]).replace(" ", "")[15:])
def test_a_config_is_read_as_transformers_reads_it(row):
    """A small model has as many parameters as transformers builds, and its layers the same windows."""
    spec = from_config(row["config"])
    assert num_parameters(spec) == row["num_parameters"]
    if "windows" in row:
        assert [spec.layer(index).window for index in range(spec.num_layers)] == row["windows"]


def test_every_architecture_is_among_them():
    """No architecture is read that was not compared; gemma3 is gemma3_text in an object of its own."""
    assert {row["config"]["model_type"] for row in ROWS} == set(known_model_types()) - {"gemma3"}
