"""`torchledger models`: the models that are known by name."""

from __future__ import annotations

from typing import Any

import click

from torchledger import config, spec
from torchledger.cli.complete import model_names
from torchledger.cli.documented import Documented
from torchledger.cli.output import json_option, show, show_json
from torchledger.formula.parameters import num_active_parameters, num_parameters
from torchledger.spec import ModelSpec
from torchledger.view.model import model_screen, models_table


@click.command(
    cls=Documented,
    examples=(
        "torchledger models                 all of them",
        "torchledger models llama           those whose name starts so",
        "torchledger models llama-3-8b      one, its whole specification",
        "torchledger models ./config.json   a Hugging Face config, as this program reads it",
    ),
)
@click.argument("name", required=False, shell_complete=model_names)
@json_option
def command(name: str | None, as_json: bool) -> None:
    """The models that are known by name.

    NAME is a preset, the start of some, a TOML file with a [model] table, a Hugging Face config.json, or a folder with
    one of these.
    """
    found = _listed(name)
    if found:
        if as_json:
            show_json("models", {"name": name}, [_row(each) for each in found])
        else:
            show((models_table(found),))
        return
    assert name is not None, "without a name all models are listed"
    one = spec.load(name)
    if as_json:
        show_json("models", {"name": name}, {**_row(one), "spec": config.to_dict(one)})
    else:
        settings = [(".".join(map(str, place)), str(value)) for place, value in config.leaves(one) if _says_much(value)]
        show(model_screen(one, settings))


def _listed(name: str | None) -> tuple[ModelSpec, ...]:
    """All presets, or those whose name starts like this where it is no preset's whole name."""
    if name is None:
        return spec.presets.table()
    if spec.presets.find(name) is not None:
        return ()
    return tuple(spec.presets.get(each) for each in spec.presets.names() if each.startswith(name.lower()))


def _row(one: ModelSpec) -> dict[str, Any]:
    return {
        "name": one.name,
        "num_parameters": num_parameters(one),
        "num_active_parameters": num_active_parameters(one),
        "max_sequence_length": one.max_sequence_length,
        "source": one.source,
    }


def _says_much(value: Any) -> bool:
    """Whether a value is worth a line: nothing, zero and the empty are what a model does not have."""
    return isinstance(value, bool) or bool(value)
