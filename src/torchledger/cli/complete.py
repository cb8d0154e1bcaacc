"""What the shell offers on TAB: chips, models. Nothing is loaded until a TAB is pressed."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def chip_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Keys of the catalog that start like this."""
    from torchledger.machine import list_chips

    return [
        CompletionItem(chip.key, help=chip.name) for chip in list_chips() if chip.key.startswith(incomplete.lower())
    ]


def model_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Presets that start like this, then files."""
    from torchledger.spec import presets

    found = [CompletionItem(name) for name in presets.names() if name.startswith(incomplete.lower())]
    return [*found, CompletionItem(incomplete, type="file")]
