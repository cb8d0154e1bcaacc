"""The model and recipe that a command was asked about: a name or file, the command's own options, then `--set`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchledger import config, spec
from torchledger.spec import ModelSpec, Recipe
from torchledger.spec.check_recipe import recipe_mistakes


@dataclass(frozen=True, slots=True)
class Asked:
    """A model and how it is trained.

    Attributes:
        model: the model.
        recipe: how it is trained.
    """

    model: ModelSpec
    recipe: Recipe


def ask(name: str, options: Mapping[str, Any], sets: Sequence[str]) -> Asked:
    """Find the model and its recipe. From weak to strong: defaults, the file's [recipe], options, `--set`.

    Args:
        name: a preset, a TOML file, a Hugging Face config.json, or a folder with one.
        options: fields of the recipe by dotted name; `None` is not given.
        sets: `model.num_layers=2`, `recipe.optimizer.kind=sgd`.

    Raises:
        SpecError, ConfigError: the model or recipe cannot be.
    """
    model = spec.load(name)
    recipe = {**recipe_of(name)}
    for place, value in options.items():
        if value is not None:
            *tables, field = place.split(".")
            inner = recipe
            for table in tables:
                inner = inner.setdefault(table, {})
            inner[field] = value
    defaults = Asked(model, Recipe(sequence_length=spec.default_sequence_length(model)))
    given: dict[str, Any] = {"table": {"recipe": recipe}, "sets": sets, "defaults": defaults}
    try:
        asked: Asked = config.load(None, Asked, **given).value
    except config.ConfigError as error:
        found = config.wrong_in_all(config.meant(None, Asked, **given), _mistakes)
        raise config.ConfigError(error.source, [*error.mistakes, *found]) from None
    if spec.check.mistakes(asked.model) and recipe_mistakes(asked.recipe, asked.model):
        raise config.ConfigError("configuration", _mistakes(asked))
    spec.check.require(asked.model)
    spec.require_recipe(asked.recipe, asked.model)
    return asked


def _mistakes(asked: Asked) -> list[tuple[str, str]]:
    """What is wrong with model and recipe."""
    found = [(f"model.{place}", message) for place, message in spec.check.mistakes(asked.model)]
    return found + [(f"recipe.{place}", message) for place, message in recipe_mistakes(asked.recipe, asked.model)]


def recipe_of(name: str) -> dict[str, Any]:
    """The [recipe] table of a TOML file, where the name means one; a run's own `precision` and `attention` go into it.

    `auto` is decided when the run begins, and left out here: the recipe's own word stands.
    """
    path = Path(name)
    path = spec.file_in(path) if path.is_dir() and spec.presets.find(name) is None else path
    if path.suffix != ".toml" or not path.is_file():
        return {}
    tables = config.read_file(path)[0].table
    table = tables.get("recipe", {})
    if not isinstance(table, Mapping):
        return {}
    own = {key: tables[key] for key in ("precision", "attention") if "data" in tables and key in tables}
    return {**table, **{key: value for key, value in own.items() if value not in {"auto", "recipe"}}}
