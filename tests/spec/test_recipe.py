import pytest

from torchledger.spec import Recipe, default_sequence_length, presets


def test_tokens_and_steps():
    """A step is batch times sequence; the last step counts even where the tokens do not fill it."""
    recipe = Recipe(batch_size=8, sequence_length=256, accumulation_steps=4, num_tokens=8 * 256 * 10 + 1)
    assert (recipe.tokens_per_step, recipe.micro_batch_size, recipe.num_steps) == (8 * 256, 8 // 4, 11)


def test_an_open_run_has_no_steps():
    """Without a number of tokens the run is open."""
    assert Recipe().num_steps == 0


@pytest.mark.parametrize(("name", "length"), [("gpt2", 1024), ("llama-3-8b", 8192), ("llama-3.1-405b", 8192)])
def test_the_default_sequence_is_the_longest_up_to_8192(name, length):
    """Models that were made for 128K positions are counted at 8,192."""
    assert default_sequence_length(presets.get(name)) == length
