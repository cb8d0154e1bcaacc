"""A model's name in a question to the napkin: it says how many parameters there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click


def params_of(model: str, options: Mapping[str, Any]) -> int:
    """Parameters N of a model, all of which every token passes.

    Args:
        model: a preset or a file.
        options: of the command; whatever else is asked.

    Raises:
        click.UsageError: the parameters are given twice, or a token passes only some of the model's.
        SpecError, ConfigError: there is no such model.
    """
    from torchledger import spec
    from torchledger.formula import num_active_parameters, num_parameters
    from torchledger.units import format_count

    if options["params"] is not None or options["solve"] in {"params", "parameters"}:
        raise click.UsageError(f"{model} has its parameters: leave out --params, --solve params or the model")
    found = spec.load(model)
    whole, active = num_parameters(found), num_active_parameters(found)
    if active != whole:
        raise click.UsageError(
            f"a token passes {format_count(active)} of {model}'s {format_count(whole)} parameters, and the napkin knows"
            f" one number: give --params {format_count(active)} (time) or {format_count(whole)} (memory), or leave out"
            " --mfu, --days, --money and --solve and have the layout planned"
        )
    return whole
