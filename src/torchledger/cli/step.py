"""How `count` answers with the ledger of a step, however it was got: overview, one cut, JSON, a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from torchledger import config
from torchledger import ledger as books
from torchledger.cli.asked import Asked
from torchledger.cli.output import note, show, show_json
from torchledger.formula.parameters import num_active_parameters, num_parameters
from torchledger.ledger import HARDWARE_FLOPS, Ledger
from torchledger.view.count import count_screen
from torchledger.view.screen import Screen, assumed
from torchledger.view.table import ledger_table


def answer_step(
    asked: Asked,
    ledger: Ledger,
    options: Mapping[str, Any],
    *,
    how: str,
    memory: Mapping[str, int],
    more: Screen = (),
) -> None:
    """Show the ledger of a step.

    Args:
        asked: model and recipe.
        ledger: the lines.
        options: of `count`: by, depth, output, as_json.
        how: how the lines were got, in words.
        memory: bytes by part at the peak.
        more: blocks for the end of the overview.
    """
    if options["output"] is not None:
        write_ledger(ledger, options["output"])
        note(f"wrote {options['output']}")
    if options["as_json"]:
        show_json("count", question_of(asked), _answer(asked, ledger, memory, how), ledger.assumptions)
    elif options["by"] is not None:
        title = f"{asked.model.name} by {options['by'].replace('_', ' ')}"
        depth = options["depth"]
        show((ledger_table(ledger, options["by"], depth=depth, title=title), *assumed(ledger.assumptions)))
    else:
        overview = count_screen(asked.model, asked.recipe, ledger, depth=options["depth"], memory=memory, how=how)
        show((*overview, *more))


def question_of(asked: Asked) -> dict[str, Any]:
    """Model and recipe as JSON tells them."""
    return {"model": config.to_dict(asked.model), "recipe": config.to_dict(asked.recipe)}


def write_ledger(ledger: Ledger, path: Path) -> None:
    """Write the lines in the format that the file's name says.

    Raises:
        click.UsageError: neither .json nor .csv.
    """
    match path.suffix:
        case ".json":
            text = books.to_json(ledger, indent=1)
        case ".csv":
            text = books.to_csv(ledger)
        case other:
            raise click.UsageError(f"-o takes a .json or a .csv file, not {other or 'one without an ending'}")
    path.write_text(text + ("" if text.endswith("\n") else "\n"), encoding="utf-8")


def _answer(asked: Asked, ledger: Ledger, memory: Mapping[str, int], how: str) -> dict[str, Any]:
    return {
        "num_parameters": num_parameters(asked.model),
        "num_active_parameters": num_active_parameters(asked.model),
        "tokens_per_step": asked.recipe.tokens_per_step,
        "total_flops": ledger.flops,
        "hardware_flops": ledger.under(HARDWARE_FLOPS).flops,
        "flops_by_phase": {phase: group.flops for phase, group in ledger.by("phase").items()},
        "peak_bytes": sum(memory.values()) if memory else None,
        "parts_bytes": dict(memory),
        "is_complete": ledger.is_complete,
        "how": how,
        "ledger": books.to_dict(ledger),
    }
