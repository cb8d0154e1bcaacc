"""`torchledger audit precision`: which numbers of a step each number format loses."""

from __future__ import annotations

from typing import Any

import click

from torchledger.cli.audit_options import answer, audit_options, subject
from torchledger.cli.documented import Documented
from torchledger.cli.progress import Progress


@click.command(
    cls=Documented,
    examples=(
        "torchledger audit precision stdlib-small --sequence 32   a preset as it begins",
        "torchledger audit precision runs/latest --html precision.html   a run as its newest checkpoint left it",
        "torchledger audit precision my.py:build --precision fp16 --strict   your own model and batch",
    ),
)
@audit_options
def command(target: str, **options: Any) -> None:
    """Which numbers of a step are lost in each number format, and which format each part can have.

    One step is run in FP32 with every tensor counted by exponent, then as it is configured, then in the mixed precision
    that follows from the counts, and each is held against FP32's loss, gradients and updates.
    """
    from torchledger.auditor import audit_precision

    asked = subject(target, options)
    progress = Progress(foretells=False)
    try:
        record = audit_precision(asked, tell=progress)
    finally:
        progress.close()
    answer(record, options)
