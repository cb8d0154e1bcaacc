"""Model files of our own: TOML with a `[model]` table, over the files it extends or over a preset.

preset = "llama-3-8b"

[model]
num_layers = 16
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torchledger.config import ConfigError, did_you_mean, load, meant, read_file, wrong_in_all
from torchledger.spec.check import Mistake, mistakes
from torchledger.spec.model import ModelSpec, SpecError


@dataclass(frozen=True, slots=True)
class ModelFile:
    """What a model file says.

    Attributes:
        model: the model.
        preset: the published model that it changes; the `[model]` table then says only what differs.
    """

    model: ModelSpec
    preset: str = ""


def read_model_file(path: Path, preset: Callable[[str], ModelSpec]) -> ModelSpec:
    """The model of a TOML file. Other tables in it are left to others, so that the config of a run works as well.

    A file that says on what `data` to train is a run's: the plain values beside its model are the run's.

    Args:
        path: the file; without `name` the model is called after it.
        preset: gives the published model of a name.

    Raises:
        ConfigError: with every mistake in it, of form or of sense.
    """
    table = read_file(path)[0].table
    base = _base(path, table, preset)
    if "model" not in table and base is None:
        tables = [key for key, value in table.items() if isinstance(value, Mapping)]
        hint = f"; {did_you_mean('model', tables)}" if tables else ""
        raise ConfigError(str(path), [("model", f"the table [model] is missing, and so is `preset`{hint}")])
    given, defaults, is_whole = _given(path, table, base)
    source = path if is_whole else None  # where the file has tables of others, messages name the file but no line
    try:
        spec = load(source, ModelFile, table=given, defaults=defaults).value.model
    except ConfigError as error:
        found = wrong_in_all(meant(source, ModelFile, table=given, defaults=defaults), _mistakes)
        raise ConfigError(str(path), [*error.mistakes, *found]) from None
    found = _mistakes(ModelFile(spec))
    if found:
        raise ConfigError(str(path), found)
    return spec


def meant_models(path: Path, preset: Callable[[str], ModelSpec]) -> tuple[ModelSpec, ...]:
    """What a file that `read_model_file` refuses for its form may mean (`config.meant`); none where that is unknown."""
    try:
        table = read_file(path)[0].table
        given, defaults, is_whole = _given(path, table, _base(path, table, preset))
        found = meant(path if is_whole else None, ModelFile, table=given, defaults=defaults)
    except ConfigError:
        return ()
    return tuple(each.model for each in found)


def _mistakes(read: ModelFile) -> list[Mistake]:
    return [(f"model.{place}", message) for place, message in mistakes(read.model)]


def named_model(path: Path) -> str | None:
    """The name or path that a run's file gives in place of a `[model]` table; nothing where there is none.

    Raises:
        ConfigError: the file cannot be read.
    """
    table = read_file(path)[0].table
    model = table.get("model")
    return model if _is_of_a_run(table) and isinstance(model, str) else None


def _is_of_a_run(table: Mapping[str, Any]) -> bool:
    return "data" in table


def _base(path: Path, table: Mapping[str, Any], preset: Callable[[str], ModelSpec]) -> ModelSpec | None:
    name = table.get("preset")
    if not isinstance(name, str) or not name:
        return None
    try:
        return preset(name)
    except SpecError as error:
        raise ConfigError(str(path), [("preset", str(error))]) from None


def _given(
    path: Path, table: Mapping[str, Any], base: ModelSpec | None
) -> tuple[dict[str, Any] | None, ModelFile | None, bool]:
    """What to read beside or in place of the file, the defaults, and whether the file is read itself."""
    defaults = None if base is None else ModelFile(replace(base, name=path.stem), base.name)
    model = table.get("model")
    named = base is not None or not isinstance(model, Mapping) or "name" in model
    name = None if named else {"model": {"name": path.stem}}
    others = {key for key, value in table.items() if isinstance(value, Mapping) or _is_of_a_run(table)}
    mine = {key: value for key, value in table.items() if key in {"model", "preset"} or key not in others}
    if len(mine) == len(table):
        return name, defaults, True
    if not named:
        mine["model"] = {"name": path.stem, **mine["model"]}
    return mine, defaults, False
