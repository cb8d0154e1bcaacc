from dataclasses import replace

import pytest

from torchledger import config as configs
from torchledger.config import ConfigError
from torchledger.spec import Recipe
from torchledger.trainer.run_config import RunConfig, SampleConfig, stdlib_config_path


def test_it_goes_to_toml_and_back(config, tmp_path):
    """A configuration written as TOML is read back equal."""
    path = tmp_path / "run.toml"
    path.write_text(configs.to_toml(config))
    assert configs.load(path, RunConfig).value == config


def test_the_embedded_configuration_is_sound():
    """The run that needs nothing but this machine is read without a mistake, and has a few hundred steps."""
    loaded = configs.load(stdlib_config_path(), RunConfig).value
    assert loaded.model.vocab_size == 4096
    assert 200 <= loaded.num_steps <= 600
    assert loaded.precision == loaded.attention == "auto"


def test_five_mistakes_are_five_lines(tmp_path):
    """Every mistake of a file is told at once, with its place and what was probably meant."""
    path = tmp_path / "run.toml"
    path.write_text(
        """
model = "gpt2"
data = "data"
num_stepps = 10
device = "gpu"
[recipe]
batch_size = "many"
[recipe.optimizer]
lr = 0.1
[sample]
length = 3.5
"""
    )
    with pytest.raises(ConfigError) as caught:
        configs.load(path, RunConfig)
    text = str(caught.value)
    for part in (
        "5 mistakes",
        "did you mean num_steps?",
        "device",
        "recipe.batch_size",
        "learning_rate",
        "sample.length",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_steps": -1}, "num_steps must be at least 0"),
        ({"num_steps": 0}, "give num_steps or recipe.num_tokens"),
        ({"recipe": Recipe(batch_size=4, sequence_length=16, num_tokens=100)}, "8 is 512 tokens, but .* says 100"),
        ({"recipe": Recipe(batch_size=4, accumulation_steps=3)}, r"recipe\.accumulation_steps 3 does not divide"),
        ({"keep": 0}, "keep must be at least 1"),
        ({"num_threads": 0}, "num_threads must be at least 1"),
        ({"name": "a/b"}, "name 'a/b' becomes a folder"),
    ],
)
def test_impossible_values_are_named(config, fields, message):
    """What cannot be is refused with the field's name and what would do."""
    with pytest.raises(ValueError, match=message):
        replace(config, **fields)


def test_sampling_values_are_checked():
    """A negative length, temperature or top_k makes no sense."""
    for field in ("length", "temperature", "top_k"):
        with pytest.raises(ValueError, match="at least 0"):
            SampleConfig(**{field: -1})
