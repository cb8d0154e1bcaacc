"""Audits of a real model on a real batch: what its numbers do, how it begins, what it copies, whether it repeats.

`audit` asks one question of a `Subject` and answers with an `AuditRecord`, which is plain data. Nothing is left on the
model afterwards: weights, gradients, modes, hooks, optimizer state and random streams are what they were.

    subject.py     Subject: model, batch, loss, optimizer; left_as_it_was
    errors.py      what cannot be audited
"""

from torchledger.auditor.errors import AuditError
from torchledger.auditor.subject import Subject, left_as_it_was

__all__ = ["AuditError", "Subject", "left_as_it_was"]
