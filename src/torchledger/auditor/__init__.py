"""Audits of a real model on a real batch: what its numbers do, how it begins, what it copies, whether it repeats.

An audit asks one question of a `Subject` and answers with an `AuditRecord`, which is plain data. Nothing is left on the
model afterwards: weights, gradients, modes, hooks, optimizer state and random streams are what they were.

    every.py       audit: one or all of them, of a module and a batch
    subject.py     Subject: model, batch, loss, optimizer; left_as_it_was
    keeping.py     everything that a step can change, remembered and put back
    seeding.py     the seeds of torch, NumPy and Python, set together
    errors.py      what cannot be audited

    precision.py               audit_precision: which numbers of a step formats lose; the recipe that follows, tried
    precision_census.py        numbers of a tensor by exponent, and so what any format loses
    precision_seen.py          activations, their gradients, and what rounding them costs
    precision_operations.py    attention logits, softmaxes, the first operation that makes infinity or NaN
    precision_step.py          a step in a format; the step in FP32 throughout
    precision_updates.py       weights that a step cannot move, epsilons that are 0
    precision_scale.py         the loss scale that FP16 needs
    precision_recipe.py        the advised recipe, and a step in it against FP32
    precision_findings.py      what is harmful
    precision_tables.py        what is told

    init.py                    audit_init: whether weights begin so that signals and gradients keep their size by depth
    init_signals.py            one step looked at: sizes at every module, forward and on the way back
    init_uses.py               which operation reads which parameter, and so its fan-in; what writes to the stream
    init_size.py               how large a tensor is, in a precision that no value of it leaves
    init_gates.py              closed ReLUs, saturated tanh and sigmoid, softmax that has chosen
    init_depth.py              the stacks of a model, and growth from layer to layer
    init_weights.py            moments of a matrix; rows that are zero, constant, or copies
    init_schemes.py            the standard deviation of each scheme, and whether a sample can come from it
    init_matrices.py           each matrix with its use, its values and its scheme
    init_judged_signals.py     findings about signals and the first loss
    init_judged_weights.py     findings about weights
    init_redrawn.py            other initial values for any module

    determinism.py             audit_determinism: whether a step repeats bit for bit
    determinism_repeat.py      runs that have to be the same, and runs with what should not matter
    determinism_run.py         a few steps from a seed, watched
    determinism_watch.py       every operation in order, with a hash of what it made
    determinism_hash.py        64 bits of everything that a tensor holds
    determinism_difference.py  the first operation in which two runs differ, and how
    determinism_data.py        whether data and first weights come again
    determinism_known.py       torch's own list of what does not repeat
    determinism_findings.py    what is said of it

    copies.py                  audit_copies: which operations of a step copy, and which need not
    copies_seen.py             every operation with the storages that it reads, writes and makes
    copies_calling.py          which call of Python an operation comes from, as it is written
    copies_kind.py             which kind of copy an operation is
    copies_accepted.py         which operations take a tensor as it lies
    copies_needed.py           whether those who read a copy could have read the original
    copies_found.py            the copies, with their bytes
    copies_findings.py         copies that are avoidable, made twice, undone at once, or grow
    aliasing.py                explain: where a tensor lies, who shares its storage, what shapes it can be viewed as
"""

from torchledger.auditor.aliasing import explain
from torchledger.auditor.copies import audit_copies
from torchledger.auditor.determinism import audit_determinism
from torchledger.auditor.errors import AuditError
from torchledger.auditor.every import audit
from torchledger.auditor.init import audit_init
from torchledger.auditor.precision import audit_precision
from torchledger.auditor.subject import Subject, left_as_it_was

__all__ = [
    "AuditError",
    "Subject",
    "audit",
    "audit_copies",
    "audit_determinism",
    "audit_init",
    "audit_precision",
    "explain",
    "left_as_it_was",
]
