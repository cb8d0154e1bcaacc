import json

import pytest

from torchledger.config import ConfigError
from torchledger.spec import SpecError, load, presets

GPT2 = {"model_type": "gpt2", "n_embd": 48, "n_head": 6, "n_layer": 2, "n_positions": 64, "vocab_size": 120}
TOML = 'preset = "gpt2"\n[model]\nnum_layers = 3\n'


def refusal(name):
    with pytest.raises((SpecError, ConfigError)) as raised:
        load(name)
    return str(raised.value)


def test_a_preset_by_any_name():
    """Names and Hugging Face ids of presets."""
    assert load("gpt2") == load("openai-community/gpt2") == presets.get("gpt2")


def test_files_of_both_kinds(tmp_path):
    """A TOML file of ours and a config.json, as text or path."""
    (tmp_path / "three.toml").write_text(TOML)
    (tmp_path / "config.json").write_text(json.dumps(GPT2))
    assert load(tmp_path / "three.toml").num_layers == load(str(tmp_path / "three.toml")).num_layers == 3
    assert load(tmp_path / "config.json").num_layers == 2


@pytest.mark.parametrize("inside", ["model.toml", "config.toml"])
def test_a_folder_with_a_model(tmp_path, inside):
    """A folder stands for the config.json in it, else for our own file."""
    (tmp_path / inside).write_text(TOML)
    assert load(tmp_path).num_layers == 3
    (tmp_path / "config.json").write_text(json.dumps(GPT2))
    assert load(tmp_path).num_layers == 2


def test_a_plain_name_is_the_preset_even_beside_a_folder(tmp_path, monkeypatch):
    """`gpt2` is the preset, `./gpt2` the folder."""
    (tmp_path / "gpt2").mkdir()
    (tmp_path / "gpt2" / "config.json").write_text(json.dumps(GPT2))
    monkeypatch.chdir(tmp_path)
    assert load("gpt2").num_layers == 12
    assert load("./gpt2").num_layers == 2


def test_a_folder_that_is_called_like_an_id_is_the_folder(tmp_path, monkeypatch):
    """A path that exists is meant before the Hugging Face id that it looks like."""
    folder = tmp_path / "openai-community" / "gpt2"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(GPT2))
    monkeypatch.chdir(tmp_path)
    assert load("openai-community/gpt2").num_layers == 2


def test_neither_a_preset_nor_a_file():
    """The message says what was given, what a model can be, and what was probably meant."""
    assert refusal("gpt2-xxl").startswith("'gpt2-xxl' is no model: a model is a preset's name, a .toml file, ")
    assert refusal("gpt2-xxl").endswith("did you mean 'gpt2-xl'?")


def test_a_file_of_another_kind(tmp_path):
    """A file that is neither TOML nor JSON is refused by its kind."""
    path = tmp_path / "model.yaml"
    path.write_text("a: 1")
    assert refusal(path).startswith(f"{path}: cannot be read as a model; a model is a preset's name")


def test_a_folder_without_a_model(tmp_path):
    """The message says what was looked for and what is there."""
    assert refusal(tmp_path).endswith("none of config.json, model.toml, config.toml; there is nothing")
    (tmp_path / "weights.bin").touch()
    assert refusal(tmp_path).endswith("there is weights.bin")


@pytest.mark.parametrize("name", ["missing.toml", "missing.json"])
def test_a_missing_file(tmp_path, name):
    """A path that does not exist is told as such."""
    assert "no such file" in refusal(tmp_path / name)
