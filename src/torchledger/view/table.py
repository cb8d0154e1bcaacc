"""Ledgers as tables: by module as a tree, by phase, op, kind or format. Every table closes with the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from torchledger.ledger import Amount, Ledger, Line
from torchledger.units import UNKNOWN, format_bytes, format_count, format_flops
from torchledger.view.screen import Row, Table

View: TypeAlias = Literal["module", "op", "phase", "kind", "number_format", "source"]

_PHASES = ("forward", "backward", "recompute", "optimizer", "communication")


def ledger_table(ledger: Ledger, by: View = "module", *, depth: int | None = None, title: str = "") -> Table:
    """The ledger cut by one field.

    Args:
        ledger: the lines, with the convention that FLOPs are read under.
        by: `module` is a tree with a column for every phase; `op` and `kind` are sorted by FLOPs.
        depth: how many levels of the module tree are shown; nothing shows all.
        title: above the table.
    """
    if by == "module":
        return _module_table(ledger, depth, title)
    groups = list(ledger.by(by).items())
    if by in {"op", "kind", "source"}:
        groups.sort(key=lambda item: -_known(item[1].flops))
    rows = [Row((str(key), *_amounts(group, ledger))) for key, group in groups]
    rows.append(Row(("total", *_amounts(ledger, ledger)), mark="total"))
    columns = (f"<{by.replace('_', ' ')}", "FLOPs", "share", "transcendentals", "bytes moved", "kept", "runs")
    return Table(columns, tuple(rows), title, footnote(ledger), optional=("runs", "transcendentals", "kept"))


def footnote(ledger: Ledger) -> str:
    """The convention and, where operations have no rule, which."""
    told = f"convention: {ledger.convention.text}"
    if ledger.is_complete:
        return told
    missing: dict[str, Amount] = {}
    for line in ledger.lines:
        if line.kind == "unknown" or line.work.flops_full is None:
            missing[line.op] = missing.get(line.op, 0) + line.times
    names = ", ".join(f"{op} ({times} times)" for op, times in missing.items())
    return f"{told}\nincomplete: no rule for {names}"


def _amounts(group: Ledger, whole: Ledger) -> tuple[str, ...]:
    work = group.total
    return (
        _shown(group.flops, format_flops),
        _share(group.flops, whole.flops),
        _shown(work.transcendentals, format_count),
        _shown(work.bytes_moved, format_bytes),
        _shown(work.bytes_kept, format_bytes),
        format_count(sum(line.times for line in group)),
    )


def _shown(amount: Amount, show: Callable[[Any], str]) -> str:
    """An amount in its unit; a plain 0 where there is nothing, so that the eye finds what there is."""
    return "0" if amount is not None and amount == 0 else show(amount)


def _share(part: Amount, whole: Amount) -> str:
    if part is None or whole is None:
        return UNKNOWN
    return f"{100 * part / whole:.1f} %" if whole else ""


def _known(amount: Amount) -> float:
    return float("-inf") if amount is None else float(amount)


@dataclass(slots=True)
class _Node:
    """A module of the tree with every line in it and below it."""

    name: str
    lines: list[Line] = field(default_factory=list)
    own: list[Line] = field(default_factory=list)
    children: dict[str, _Node] = field(default_factory=dict)


def _module_table(ledger: Ledger, depth: int | None, title: str) -> Table:
    phases = [phase for phase in _PHASES if _flops_of(ledger, phase) != 0]
    columns = ("<module", *phases, "FLOPs", "share", "bytes moved", "kept")
    rows = [
        Row((node.name, *_module_cells(ledger, node.lines, phases)), level)
        for node, level in _walk(_tree(ledger), 0)
        if depth is None or level < depth
    ]
    rows.append(Row(("total", *_module_cells(ledger, ledger.lines, phases)), mark="total"))
    return Table(columns, tuple(rows), title, footnote(ledger), optional=("bytes moved", "kept", *phases))


def _flops_of(ledger: Ledger, phase: str) -> Amount:
    return ledger.where(phase=phase).flops


def _module_cells(ledger: Ledger, lines: Iterable[Line], phases: Sequence[str]) -> tuple[str, ...]:
    group = Ledger(tuple(lines), ledger.convention)
    by_phase = group.by("phase")
    work = group.total
    return (
        *(_shown(by_phase[phase].flops, format_flops) if phase in by_phase else "" for phase in phases),
        _shown(group.flops, format_flops),
        _share(group.flops, ledger.flops),
        _shown(work.bytes_moved, format_bytes),
        _shown(work.bytes_kept, format_bytes),
    )


def _tree(ledger: Ledger) -> _Node:
    root = _Node("")
    for line in ledger:
        node = root
        node.lines.append(line)
        for part in (line.module or "(step)").split("."):
            node = node.children.setdefault(part, _Node(part))
            node.lines.append(line)
        node.own.append(line)
    return root


def _walk(node: _Node, level: int) -> Iterable[tuple[_Node, int]]:
    """Nodes below `node` with their level; a chain of single children without lines of their own is one node.

    A module that does something itself beside what its children do ends with a row of its own, so that the rows of
    every level add up to the row above them.
    """
    for child in node.children.values():
        merged = child
        while len(merged.children) == 1 and not merged.own:
            (only,) = merged.children.values()
            merged = _Node(f"{merged.name}.{only.name}", only.lines, only.own, only.children)
        yield merged, level
        yield from _walk(merged, level + 1)
    if node.own and node.children:
        yield _Node("(itself)", node.own), level
