"""`torchledger config`: show, check and describe configuration files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from torchledger import config, spec
from torchledger.cli.documented import Documented
from torchledger.cli.named_path import NamedPath
from torchledger.cli.output import json_option, show, show_json
from torchledger.cli.runs import load_run_config
from torchledger.spec.file import ModelFile, read_model_file
from torchledger.view.screen import Lines, table

_FILE = click.argument("file", type=NamedPath(exists=True, dir_okay=False, path_type=Path))
_SETS = click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Change a value (may be repeated).")


@click.group()
def command() -> None:
    """Show, check and describe configuration files.

    A run's file has `model`, `data` and [recipe]; a model's file has [model] alone. Files may start from others
    (`extends = "base.toml"`), and every mistake is told at once.
    """


@command.command("show", cls=Documented, examples=("torchledger config show run.toml --set recipe.batch_size=16",))
@_FILE
@_SETS
@click.option("--toml", "as_toml", is_flag=True, help="As a TOML file that stands alone.")
@json_option
def show_command(file: Path, sets: tuple[str, ...], as_toml: bool, as_json: bool) -> None:
    """The whole configuration, every default included, and where each value comes from."""
    loaded = _load(file, sets)
    if as_toml:
        click.echo(config.to_toml(loaded.value), nl=False)
    elif as_json:
        answer = {"config": config.to_dict(loaded.value), "origins": dict(loaded.origins)}
        show_json("config", {"file": str(file), "sets": list(sets)}, answer)
    else:
        rows = (
            (name, "none" if value is None else str(value), loaded.origins.get(name, ""))
            for name, value in ((_dotted(place), value) for place, value in config.leaves(loaded.value))
        )
        show((table(("<key", "<value", "<from"), rows, title=str(file)),))


@command.command("check", cls=Documented, examples=("torchledger config check run.toml",))
@_FILE
@_SETS
@json_option
def check_command(file: Path, sets: tuple[str, ...], as_json: bool) -> None:
    """Say whether a file is right: nothing wrong is exit code 0; every mistake at once, and exit code 2."""
    loaded = _load(file, sets)
    if as_json:
        show_json("config", {"file": str(file)}, {"is_right": True})
    else:
        show((Lines((f"{file}: {len(loaded.origins)} values, nothing wrong",)),))


@command.command("schema", cls=Documented, examples=("torchledger config schema run > run.schema.json",))
@click.argument("kind", type=click.Choice(("run", "model")), default="run")
@click.option("--json", "_as_json", is_flag=True, help="As it always is.")
def schema_command(kind: str, _as_json: bool) -> None:
    """The JSON Schema of a run's or a model's file, with which editors complete and check TOML."""
    import json

    click.echo(json.dumps(config.schema(_run_class() if kind == "run" else ModelFile), indent=2))


def _run_class() -> type[Any]:
    from torchledger.trainer.run_config import RunConfig

    return RunConfig


def _load(file: Path, sets: tuple[str, ...]) -> config.Loaded[Any]:
    """A run's file where it says what to train on or how, a model's file otherwise.

    Raises:
        ConfigError: with every mistake in it.
    """
    tables = config.read_file(file)[0].table
    if not _is_model_file(tables):
        return load_run_config(file, sets)
    model = read_model_file(file, spec.presets.get)
    is_named = "name" in tables.get("model", {})
    loaded: config.Loaded[Any] = config.load(
        file,
        ModelFile,
        table=None if is_named else {"model": {"name": model.name}},
        sets=sets,
        defaults=ModelFile(model),
    )
    spec.check.require(loaded.value.model)
    return loaded


def _is_model_file(tables: Mapping[str, Any]) -> bool:
    return not tables.keys() & {"data", "recipe", "num_steps", "sample", "runs"}


def _dotted(place: tuple[str | int, ...]) -> str:
    return ".".join(map(str, place))
