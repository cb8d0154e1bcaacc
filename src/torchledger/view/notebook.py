"""Objects find their looks here: how ledgers, audits and tensors explained print, and how a notebook shows them."""

from __future__ import annotations

from torchledger.ledger import AuditRecord, Ledger, display
from torchledger.view import aliasing
from torchledger.view.audits import audit_screen
from torchledger.view.markup import fragment
from torchledger.view.screen import Block, assumed
from torchledger.view.table import ledger_table
from torchledger.view.terminal import draw

_STYLE = (
    "<style>.torchledger table{border-collapse:collapse}.torchledger th,.torchledger td{padding:.1em .8em .1em 0;"
    "text-align:left}.torchledger .number{text-align:right}.torchledger .total td{font-weight:600;"
    "border-top:1px solid}.torchledger .note{opacity:.7;white-space:pre-line}</style>"
)


def ledger_text(ledger: Ledger) -> str:
    """The ledger by module, as `print(ledger)` shows it."""
    return draw(_blocks(ledger)).rstrip("\n")


def ledger_html(ledger: Ledger) -> str:
    """The ledger by module, as a notebook shows it; no script."""
    return f'{_STYLE}<div class="torchledger">{fragment(_blocks(ledger))}</div>'


def register() -> None:
    """Tell ledgers, audits, and tensors explained, how they look."""
    display.register(Ledger, "text", ledger_text)
    display.register(Ledger, "html", ledger_html)
    aliasing.register()
    display.register(AuditRecord, "text", lambda record: draw(audit_screen(record)).rstrip("\n"))
    display.register(
        AuditRecord, "html", lambda record: f'{_STYLE}<div class="torchledger">{fragment(audit_screen(record))}</div>'
    )


def _blocks(ledger: Ledger) -> tuple[Block, ...]:
    return (ledger_table(ledger), *assumed(ledger.assumptions))
