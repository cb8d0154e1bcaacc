"""What would fit, found without tracing every micro-batch."""

from dataclasses import replace

import pytest

from torchledger.cli.prediction import _tensor_peak_bytes, look
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, Recipe

TINY = ModelSpec("tiny", 64, 16, 2, 32, AttentionSpec(4), MlpSpec(64))


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("accumulation_steps", [1, 2, 4, 8])
def test_the_peak_of_many_micro_batches_is_that_of_two(recompute, accumulation_steps):
    """The short cut gives the peak of the whole step, to the byte."""
    recipe = Recipe(batch_size=8, sequence_length=16, accumulation_steps=accumulation_steps)
    recipe = replace(recipe, recompute=recompute)
    assert _tensor_peak_bytes(TINY, recipe) == look(TINY, recipe).peak().peak_bytes
