"""The type of arguments and options that are files or folders."""

from __future__ import annotations

import os
from typing import Any

import click

__all__ = ["NamedPath"]


class NamedPath(click.Path):
    """A path as click has it, but never the empty one, of which `Path` makes the current folder.

    An unset shell variable is empty: `train --out "$RUN"` would write where it was started.
    """

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, as click converts it."""
        if value == "":
            self.fail("an empty path names nothing; name a file or folder (. is the current one)", param, ctx)
        return super().convert(value, param, ctx)
