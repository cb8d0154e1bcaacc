"""The answer type: what a training step costs, line by line.

`Work` is a cost, `Line` is a cost with its place, `Ledger` is many lines that add and subtract, `Convention` says how
FLOPs are read, `Difference` holds a prediction against a measurement, `Finding`, `AuditRecord` and `RunRecord` are what
audits and runs leave behind. Nothing here knows torch, nor how it is drawn.
"""

from torchledger.ledger.audit import AuditKind, AuditRecord
from torchledger.ledger.convention import HARDWARE_FLOPS, MODEL_FLOPS, Convention, ConventionMismatch
from torchledger.ledger.coverage import Coverage, UnknownOperation, unknown_operations
from torchledger.ledger.difference import Difference, beyond
from torchledger.ledger.finding import Finding
from torchledger.ledger.ledger import Ledger, fold_path
from torchledger.ledger.line import CONTRACTIONS, GradientOf, Kind, Line, Origin, Phase, Shape
from torchledger.ledger.rows import LedgerFormatError, from_csv, from_json, to_csv, to_dict, to_json, to_rows
from torchledger.ledger.run import RunRecord
from torchledger.ledger.work import NO_WORK, WORK_FIELDS, Amount, Work, total

__all__ = [
    "CONTRACTIONS",
    "HARDWARE_FLOPS",
    "MODEL_FLOPS",
    "NO_WORK",
    "WORK_FIELDS",
    "Amount",
    "AuditKind",
    "AuditRecord",
    "Convention",
    "ConventionMismatch",
    "Coverage",
    "Difference",
    "Finding",
    "GradientOf",
    "Kind",
    "Ledger",
    "LedgerFormatError",
    "Line",
    "Origin",
    "Phase",
    "RunRecord",
    "Shape",
    "UnknownOperation",
    "Work",
    "beyond",
    "fold_path",
    "from_csv",
    "from_json",
    "to_csv",
    "to_dict",
    "to_json",
    "to_rows",
    "total",
    "unknown_operations",
]
