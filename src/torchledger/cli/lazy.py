"""A group whose commands are imported when they are called, and listed from a table until then."""

from __future__ import annotations

import contextlib
import gc
import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import click

from torchledger.cli.documented import write_examples


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """What an import makes is there to stay, and looking for garbage in it takes a twentieth of a command's start."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class LazyCommands(click.Group):
    """A group of commands that live in modules of their own.

    Args:
        commands_from: what a command's module is called, up to the command's name.
        listed: every command with what it answers, in the order of the help.
        examples: lines as a user types them, at the end of the help.
    """

    def __init__(
        self,
        *args: Any,
        commands_from: str,
        listed: Mapping[str, str],
        examples: tuple[str, ...] = (),
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.examples = examples
        self._commands_from = commands_from
        self._listed = listed

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names in the order of the table."""
        return list(self._listed)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import the command."""
        if cmd_name not in self._listed:
            return None
        with importing():
            found: click.Command = importlib.import_module(self._commands_from + cmd_name.replace("-", "_")).command
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, with a "did you mean" for a name that is none."""
        name = args[0]
        if name not in self._listed and not name.startswith("-"):
            import difflib  # costs 6 ms and is needed only when something is wrong

            near = difflib.get_close_matches(name, self._listed, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(self._listed)}"
            raise click.UsageError(f"no command {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write the examples as they are."""
        write_examples(self.examples, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._listed.items()), col_max=12)
