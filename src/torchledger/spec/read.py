"""`load`: a model from whatever names it: a preset, a TOML file, a Hugging Face `config.json`, a folder with one."""

from __future__ import annotations

from pathlib import Path

from torchledger.config import ConfigError
from torchledger.spec import presets
from torchledger.spec.file import named_model, read_model_file
from torchledger.spec.model import ModelSpec, SpecError

_IN_A_FOLDER = ("config.json", "model.toml", "config.toml")
_ACCEPTED = "a model is a preset's name, a .toml file, a Hugging Face config.json, or a folder with one"


def load(name: str | Path) -> ModelSpec:
    """The model that a name or path means.

    A name that is a preset's (`gpt2`) means the preset even where a file has it too; `./gpt2` is the file.

    Args:
        name: preset name or Hugging Face id of one, or the path of a TOML file with a `[model]` table (`extends` and
            `preset` work), of a run's file, of a `config.json`, or of a folder with one of them.

    Raises:
        SpecError: neither a preset nor a file, or a model that cannot be; the message says what was given, what is
            there, and what was probably meant.
        ConfigError: a TOML file with mistakes, all of them.
    """
    path = Path(name)
    preset = presets.find(name) if isinstance(name, str) else None
    if preset is not None and (path.name == name or not path.exists()):
        return presets.get(preset)
    if path.is_dir():
        return load(file_in(path))
    if path.suffix == ".toml":
        return _toml(path)
    if path.suffix == ".json":
        return _config_json(path)
    if path.exists():
        raise SpecError(f"{path}: cannot be read as a model; {_ACCEPTED}")
    raise SpecError(f"{str(name)!r} is no model: {_ACCEPTED}; {presets.suggestion(str(name))}")


def file_in(path: Path) -> Path:
    """The file of a folder that says what its model is; a file is itself.

    Raises:
        SpecError: there is none in the folder; the message says what is there.
    """
    if not path.is_dir():
        return path
    for inside in _IN_A_FOLDER:
        if (path / inside).is_file():
            return path / inside
    there = sorted(each.name for each in path.iterdir())
    listed = ", ".join(there[:8]) + (", ..." if len(there) > 8 else "") if there else "nothing"
    raise SpecError(f"{path}: the folder has none of {', '.join(_IN_A_FOLDER)}; there is {listed}")


def _toml(path: Path) -> ModelSpec:
    named = named_model(path)
    if named is None:
        return read_model_file(path, presets.get)
    if named.endswith(".toml") and named_model(Path(named)) is not None:
        message = f"{named} names its model too; name a preset, a model file or a config.json"
        raise ConfigError(str(path), [("model", message)])
    try:
        return load(named)
    except SpecError as error:
        raise ConfigError(str(path), [("model", str(error))]) from error


def _config_json(path: Path) -> ModelSpec:
    from torchledger.spec.huggingface import from_config  # a preset or TOML file needs none of it

    return from_config(path)
