"""Memory by part as bars against what there is."""

from __future__ import annotations

from collections.abc import Mapping

from torchledger.memory import Peak
from torchledger.units import format_bytes, format_percent, group_digits
from torchledger.view.screen import Bar, Bars, Row, Table


def memory_bars(parts: Mapping[str, int], *, capacity_bytes: int | None = None, title: str = "peak memory") -> Bars:
    """Bytes by part, each bar a share of the whole; the first bar is the whole against the capacity where one is known.

    Args:
        parts: bytes by part; parts without bytes are left out.
        capacity_bytes: bytes there are.
        title: what the sum is.
    """
    total = sum(parts.values())
    bars = []
    if capacity_bytes:
        share = total / capacity_bytes
        bars.append(
            Bar("all", share, f"{format_bytes(total)} of {format_bytes(capacity_bytes)}, {format_percent(share)}")
        )
    for part, num_bytes in parts.items():
        if num_bytes:
            share = num_bytes / total
            bars.append(Bar(part, share, f"{format_bytes(num_bytes)}, {format_percent(share)}"))
    return Bars(tuple(bars), f"{title}: {format_bytes(total)} ({group_digits(total)} B)")


def live_table(peak: Peak, *, limit: int = 20) -> Table:
    """The largest tensors alive at the peak."""
    rows = [
        Row(
            (
                block.name or block.module or "(step)",
                block.op,
                block.part,
                "×".join(str(size) for size in block.shape),
                block.number_format,
                format_bytes(block.num_bytes),
            )
        )
        for block in peak.blocks[:limit]
    ]
    left = peak.blocks[limit:]
    note = (
        f"and {group_digits(len(left))} smaller, {format_bytes(sum(b.num_bytes for b in left))} in all" if left else ""
    )
    columns = ("<what", "<op", "<part", "<shape", "<format", "bytes")
    return Table(columns, tuple(rows), "alive at the peak", note, optional=("op", "format"))
