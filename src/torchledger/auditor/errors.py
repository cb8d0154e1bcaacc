"""Errors of the auditor."""


class AuditError(ValueError):
    """What was asked cannot be audited; the message says what is missing and what to do."""
