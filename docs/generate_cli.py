"""Write docs/cli.md from the commands' own help, so that the reference cannot say anything else (`make docs`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from torchledger.cli.main import torchledger_command

TARGET = Path(__file__).with_name("cli.md")
WIDTH = 100

HEAD = """# The command line

Generated from the commands' own `--help` by `make docs`; a test holds it to be current.

The answer goes to stdout, everything else to stderr. `--json` on any command gives `{schema, question, answer,
assumptions}` with full numbers; keys carry their units (`peak_bytes`, `step_s`, `total_flops`).

| exit code | meaning |
|---|---|
| 0 | fine |
| 1 | something failed: a full disk, a loss that is no number, our own mistake |
| 2 | wrong usage or configuration |
| 3 | does not fit, or asks for more than the peak |
| 4 | `compare`: beyond tolerance |
| 130 | interrupted; `train` has saved |
| 143 | terminated; `train` has saved |

Colours and boxes appear on a terminal only. `NO_COLOR`, `FORCE_COLOR`, `TERM=dumb` and `COLUMNS` are honoured. TAB
completion: `eval "$(_TORCHLEDGER_COMPLETE=bash_source torchledger)"` (or `zsh_source`, `fish_source`).
"""


def reference() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_sections(torchledger_command, None, "torchledger")])


def _sections(command: click.Command, parent: click.Context | None, path: str) -> Iterator[str]:
    settings = command.context_settings if parent is None else {}
    context = click.Context(command, info_name=path.rpartition(" ")[2], parent=parent, **settings)
    context.terminal_width = context.max_content_width = WIDTH
    level = "#" * (1 + len(path.split()))
    yield f"{level} {path}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"
    # Asked by its own list: a group may import its commands as late as they are called.
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        child = command.get_command(context, name)
        assert child is not None
        yield from _sections(child, context, f"{path} {name}")


if __name__ == "__main__":
    TARGET.write_text(reference(), encoding="utf-8")
    sys.stdout.write(f"wrote {TARGET}\n")
