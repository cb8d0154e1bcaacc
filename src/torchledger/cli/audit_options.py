"""What all audits share on the command line: the target, its options, and how an answer is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from torchledger.cli.complete import model_names
from torchledger.cli.failure import Failed
from torchledger.cli.named_path import NamedPath
from torchledger.cli.output import json_option, note, show, show_json
from torchledger.cli.quantity import COUNT

if TYPE_CHECKING:
    from torchledger.auditor import Subject
    from torchledger.ledger import AuditRecord

Function = TypeVar("Function", bound=Callable[..., Any])


def audit_options(function: Function) -> Function:
    """Add the target and the options that every audit has."""
    for add in reversed(
        (
            click.argument("target", shell_complete=model_names),
            click.option(
                "--batch", "batch_size", type=COUNT, help="Sequences in the batch (default: the target's own)."
            ),
            click.option("--sequence", "sequence_length", type=COUNT, help="Tokens in a sequence."),
            click.option(
                "--precision", type=click.Choice(("fp32", "bf16", "fp16")), help="What the forward pass is cast to."
            ),
            click.option("--seed", type=int, help="Of weights and data (default: the target's own)."),
            click.option(
                "--set",
                "sets",
                multiple=True,
                metavar="KEY=VALUE",
                help="A field of the target's file (may be repeated).",
            ),
            click.option(
                "--html",
                type=NamedPath(dir_okay=False, writable=True, path_type=Path),
                help="Write a page with plots as well.",
            ),
            click.option("--strict", is_flag=True, help="Exit 1 when there is a warning or an error."),
            json_option,
        )
    ):
        function = add(function)
    return function


def subject(target: str, options: Mapping[str, Any]) -> Subject:
    """The subject of the command line."""
    from torchledger.cli.audited import subject_of

    return subject_of(target, options)


def answer(record: AuditRecord, options: Mapping[str, Any]) -> None:
    """Show an audit, write its page where one was asked for, and judge it under `--strict`.

    Raises:
        Failed: `--strict`, and something harms or breaks the run.
    """
    from torchledger.view.audits import audit_page, audit_screen, verdict

    if options["html"] is not None:
        page = audit_page((record,), f"{record.audit} of {record.subject}")
        options["html"].write_text(page, encoding="utf-8")
        note(f"wrote {options['html']}")
    if options["as_json"]:
        from dataclasses import asdict

        asked = {"target": record.subject, "audit": record.audit}
        told = {key: value for key, value in asdict(record).items() if key not in {"audit", "subject", "assumptions"}}
        show_json("audit", asked, told, record.assumptions)
    else:
        show(audit_screen(record))
    if options["strict"] and not record.is_clean:
        raise Failed(f"{record.audit} of {record.subject}: {verdict(record)}")
