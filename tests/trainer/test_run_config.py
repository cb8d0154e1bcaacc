import math
from dataclasses import replace
from typing import get_args, get_type_hints

import pytest

from torchledger import config as configs
from torchledger.config import ConfigError
from torchledger.spec import Recipe
from torchledger.trainer.precision import BUILT
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


def test_a_run_can_ask_for_every_precision_that_is_built():
    """What the trainer runs can be named beside `recipe` and `auto`, and nothing else can."""
    asked = get_args(get_type_hints(RunConfig)["precision"])
    assert asked == ("recipe", "auto", *BUILT)


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


def test_mistakes_of_form_and_of_sense_are_told_in_one_message(tmp_path):
    """A value of the wrong type does not hide that another is impossible, nor a model that is none or cannot be."""
    path = tmp_path / "run.toml"
    path.write_text(
        """
model = "gtp2"
data = 3
num_steps = 0
keep = 0
name = "a/b"
[recipe]
sequence_length = 0
[sample]
length = -1
"""
    )
    with pytest.raises(ConfigError) as caught:
        configs.load(path, RunConfig)
    told = dict(caught.value.mistakes)
    assert set(told) == {"model", "data", "keep", "name", "recipe.sequence_length", "sample.length"}
    assert "did you mean 'gpt2'?" in told["model"]
    assert all(f"[{path}:" in message for message in told.values())


def test_a_model_that_cannot_be_is_told_with_its_lines(config, tmp_path):
    """The mistakes of a model's table stand at their own lines, one in a list included."""
    path = tmp_path / "run.toml"
    text = configs.to_toml(config).replace("num_layers = ", "num_layers = 1 # ", 1)
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        configs.load(path, RunConfig, sets=["model.attention.window_pattern=[-1]", "model.norm.epsilon=-1"])
    assert {place for place, _ in caught.value.mistakes} == {"model.attention.window_pattern[0]", "model.norm.epsilon"}


def test_what_ties_two_fields_is_not_judged_where_one_is_unread(tmp_path):
    """A misspelt num_steps is one mistake, not two."""
    path = tmp_path / "run.toml"
    path.write_text('model = "gpt2"\ndata = "data"\nnum_step = 10\n')
    with pytest.raises(ConfigError) as caught:
        configs.load(path, RunConfig)
    assert [place for place, _ in caught.value.mistakes] == ["num_step"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_steps": -1}, "num_steps: must be at least 0"),
        ({"num_steps": 0}, "num_steps: is 0 or not given, and so is recipe.num_tokens: .* give one of them"),
        ({"recipe": Recipe(batch_size=4, sequence_length=16, num_tokens=100)}, "8 is 512 tokens, but .* says 100"),
        ({"recipe": Recipe(batch_size=4, accumulation_steps=3)}, r"recipe\.accumulation_steps: 3 does not divide"),
        ({"keep": 0}, "keep: must be at least 1"),
        ({"num_threads": 0}, "num_threads: must be at least 1"),
        ({"name": "a/b"}, "name: 'a/b' becomes a folder"),
    ],
)
def test_impossible_values_are_named(config, fields, message):
    """What cannot be is refused with the field's name and what would do."""
    with pytest.raises(ValueError, match=message):
        replace(config, **fields)


def test_a_gpu_is_no_misspelt_cpu(config, tmp_path):
    """The other word for a GPU's device is told, whose spelling is farther off."""
    path = tmp_path / "run.toml"
    path.write_text(configs.to_toml(config))
    with pytest.raises(ConfigError, match="got 'gpu'; did you mean 'cuda'"):
        configs.load(path, RunConfig, sets=["device=gpu"])


def test_sampling_values_are_checked():
    """A negative length, temperature or top_k makes no sense."""
    for field in ("length", "temperature", "top_k"):
        with pytest.raises(ValueError, match="at least 0"):
            SampleConfig(**{field: -1})
    for endless in (math.inf, math.nan):
        with pytest.raises(ValueError, match="finite"):
            SampleConfig(temperature=endless)


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("num_threads = 100000", "num_threads"),
        ("[strategy]\ndata_parallel = 0", "strategy.data_parallel"),
        ("[strategy]\nshard_level = 5", "strategy.shard_level"),
        ("[strategy]\nmicro_batch_size = -1", "strategy.micro_batch_size"),
    ],
)
def test_a_layout_that_cannot_be_is_told_as_the_file_is_read(tmp_path, line, place):
    """Numbers of ranks below one and threads by the hundred thousand are named before anything divides by them."""
    path = tmp_path / "run.toml"
    path.write_text(f'model = "gpt2"\ndata = "data"\nnum_steps = 1\n{line}\n')
    with pytest.raises(ConfigError, match=place):
        configs.load(path, RunConfig)
