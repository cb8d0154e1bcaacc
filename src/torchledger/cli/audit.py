"""`torchledger audit`: what a model does to its numbers, one command for each question."""

from __future__ import annotations

import click

from torchledger.cli.lazy import LazyCommands

#: Each audit with its question; the module `audit_<name>` beside this one has the function `command`.
AUDITS: dict[str, str] = {
    "precision": "Which numbers of a step are lost in each number format, and which format each part can have.",
    "init": "Whether weights begin so that signals and gradients keep their size by depth.",
    "copies": "Which operations of a step copy what could have been a view, with bytes and source lines.",
    "determinism": "Whether a step repeats bit for bit, and the first operation that does not.",
}


@click.group(cls=LazyCommands, commands_from="torchledger.cli.audit_", listed=AUDITS)
def command() -> None:
    """What a model does to its numbers: formats, initialisation, copies, determinism.

    A target is a run's folder or checkpoint; a run's file; a preset or a model's file; a function of your own
    (file.py:build, as for `count --trace`); or a Hugging Face config.json. Nothing of it is changed.
    """
