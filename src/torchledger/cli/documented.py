"""Commands and groups whose help ends with examples, kept line by line. The tests run every one of them."""

from __future__ import annotations

from typing import Any

import click


class Documented(click.Command):
    """A command with examples.

    Args:
        examples: lines as a user types them; two spaces and more text say what it does.
    """

    def __init__(self, *args: Any, examples: tuple[str, ...] = (), **options: Any) -> None:
        super().__init__(*args, **options)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write the examples as they are."""
        write_examples(self.examples, formatter)


def write_examples(examples: tuple[str, ...], formatter: click.HelpFormatter) -> None:
    """An `Examples` section that is not wrapped."""
    if examples:
        with formatter.section("Examples"):
            for line in examples:
                formatter.write(f"  {line}\n")
