"""`torchledger audit copies`: what a step copies, and what it need not."""

from __future__ import annotations

from typing import Any

import click

from torchledger.cli.audit_options import answer, audit_options, subject
from torchledger.cli.documented import Documented


@click.command(
    cls=Documented,
    examples=(
        "torchledger audit copies gpt2 --sequence 64            a preset: how much of a step is copies",
        "torchledger audit copies llama-3.2-1b --set model.num_layers=2 --precision bf16 --sequence 64",
    ),
)
@audit_options
def command(target: str, **options: Any) -> None:
    """Which operations of a step copy what could have been a view, with bytes and source lines.

    The step is traced on fake tensors: nothing is computed, and TARGET is not touched. Every copy is told with the
    bytes that it reads and writes, the line that asked for it, and whether all that reads it could have read the
    original where it lies. Copies that autocast, a product or a gradient needs are told, and are no findings.
    """
    from torchledger.auditor import audit_copies

    answer(audit_copies(subject(target, options)), options)
