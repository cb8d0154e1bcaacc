"""Two ledgers held against each other: totals as differences, and the accounts that are apart."""

from __future__ import annotations

from torchledger.ledger import Difference, Ledger
from torchledger.units import format_flops, group_digits
from torchledger.view.screen import Row, Table


def ledger_differences(
    first: Ledger, second: Ledger, *, tolerance: float = 0.0, bytes_tolerance: float | None = None
) -> tuple[Difference, ...]:
    """Phase by phase and in all: FLOPs under the convention, kept bytes, moved bytes.

    Args:
        first: the prediction.
        second: what it is held against, under the same convention.
        tolerance: of FLOPs; 0 is exact.
        bytes_tolerance: of bytes; nothing reports them without a target, because kernels are cut differently.

    Raises:
        ConventionMismatch: the two are read under different conventions.
    """
    (first - second).lines  # noqa: B018 - refuses ledgers under different conventions
    mine, theirs = first.by("phase"), second.by("phase")
    empty = Ledger((), first.convention)
    found = []
    for phase in dict.fromkeys((*mine, *theirs)):
        flops = (mine.get(phase, empty).flops, theirs.get(phase, empty).flops)
        found.append(Difference(f"{phase}_flops", "FLOP", *flops, tolerance))
    found.append(Difference("total_flops", "FLOP", first.flops, second.flops, tolerance, first.convention.text))
    a, b = first.total, second.total
    found.append(Difference("kept_bytes", "B", a.bytes_kept, b.bytes_kept, bytes_tolerance))
    found.append(Difference("moved_bytes", "B", a.bytes_moved, b.bytes_moved, bytes_tolerance))
    return tuple(found)


def apart_table(first: Ledger, second: Ledger, *, limit: int = 20) -> Table | None:
    """The accounts whose FLOPs differ, largest difference first; nothing where none does."""
    convention = first.convention
    by_account = [(line, convention.flops(line)) for line in (first - second).lines if convention.flops(line) != 0]
    if not by_account:
        return None
    by_account.sort(key=lambda item: -abs(float("inf") if item[1] is None else item[1]))
    rows = tuple(
        Row((line.module or "(step)", line.phase, line.gradient_of, line.kind, line.number_format, _signed(flops)))
        for line, flops in by_account[:limit]
    )
    left = len(by_account) - limit
    note = f"and {group_digits(left)} more" if left > 0 else ""
    columns = ("<module", "<phase", "<gradient of", "<kind", "<format", "first - second")
    return Table(columns, rows, "accounts that are apart", note, optional=("format",))


def _signed(flops: float | None) -> str:
    return format_flops(flops) if flops is None or flops <= 0 else f"+{format_flops(flops)}"
