"""`audit`: one or all audits of a module and a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

from torch import Tensor, nn
from torch.optim import Optimizer

from torchledger.auditor.copies import audit_copies
from torchledger.auditor.determinism import audit_determinism
from torchledger.auditor.errors import AuditError
from torchledger.auditor.init import audit_init
from torchledger.auditor.precision import audit_precision
from torchledger.auditor.subject import Precision, Subject
from torchledger.ledger import AuditKind, AuditRecord

_AUDITS: Mapping[str, Callable[[Subject], AuditRecord]] = {
    "precision": audit_precision,
    "init": audit_init,
    "copies": audit_copies,
    "determinism": audit_determinism,
}


def audit(
    subject: Subject | nn.Module,
    batch: Any = None,
    *,
    loss: Callable[[Any, Any], Tensor] | None = None,
    optimizer: Optimizer | None = None,
    precision: Precision = "fp32",
    kinds: Iterable[AuditKind] = get_args(AuditKind),
) -> dict[str, AuditRecord]:
    """Audit a module on a batch: what its numbers do, how it begins, what it copies, whether it repeats.

    `print` a record, or let a notebook show it. Nothing is left on the module.

    Args:
        subject: a module; or a `Subject`, which says everything below and more.
        batch: what the module takes: a tensor, a tuple of arguments, or a mapping of keyword arguments.
        loss: of output and batch; nothing where the module returns a scalar, or an output with `loss`.
        optimizer: on the module's parameters, in the state that training has left it in.
        precision: what the forward pass is autocast to; `fp32` is no autocast.
        kinds: which audits; all of them without.

    Returns:
        The record of each audit by its kind, in the order that was asked for.

    Raises:
        AuditError: no batch, an audit that there is not, or a module that an audit cannot run; says why.
    """
    wanted = [kinds] if isinstance(kinds, str) else list(kinds)
    unknown = [kind for kind in wanted if kind not in _AUDITS]
    if unknown:
        raise AuditError(f"no audit is called {', '.join(map(repr, unknown))}; there are {', '.join(_AUDITS)}")
    if not isinstance(subject, Subject):
        if batch is None:
            raise AuditError(f"{type(subject).__name__} needs a batch to run on: audit(model, batch, loss=...)")
        name = type(subject).__name__
        subject = Subject(name, subject, batch, loss=loss, optimizer=optimizer, precision=precision)
    return {kind: _AUDITS[kind](subject) for kind in wanted}
