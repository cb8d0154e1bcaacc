"""A plan by pipeline stage: layers, parameters, memory, how long each computes and how long it waits."""

from __future__ import annotations

from torchledger.planner.outcome import Plan, StagePlan
from torchledger.planner.stage import Stage
from torchledger.units import format_count, format_duration, format_percent
from torchledger.view.adding import bytes_printed
from torchledger.view.screen import Row, Table

#: Rows of the table; of a longer pipeline that many stages are listed, the fullest and the slowest among them.
_MOST_ROWS = 20


def stage_table(plan: Plan) -> Table:
    """One row a stage; neighbours that print alike are one row."""
    rows: list[tuple[int, int, tuple[str, ...], bool]] = []
    for each in plan.stages:
        cells, mine = _cells(each, plan), _is_marked(each, plan)
        if rows and rows[-1][2] == cells and rows[-1][3] == mine:
            rows[-1] = (rows[-1][0], each.stage.index, cells, mine)
        else:
            rows.append((each.stage.index, each.stage.index, cells, mine))
    shown, note = _few(rows, plan)
    columns = ("<stage", "<holds", "parameters", "memory", "busy", "bubble", "<")
    title = "by stage, one rank of each" if len(plan.stages) > 1 else "one rank"
    return Table(columns, tuple(shown), title, note, optional=("busy", "parameters"))


def holds(stage: Stage) -> str:
    """What a stage is made of: `embedding, 8 layers`.

    Layers of all kinds are counted together, over all chunks; with chunks, their number is told.
    """
    count = {
        kind: sum(n for block, n in stage.blocks if block.kind == kind)
        for kind in ("embedding", "layer", "prediction", "head")
    }
    parts = ["embedding"] if count["embedding"] else []
    if count["layer"]:
        parts.append(f"{count['layer']} layer{'s' if count['layer'] > 1 else ''}")
    parts += ["prediction"] if count["prediction"] else []
    parts += ["head"] if count["head"] else []
    chunks = f" in {len(stage.chunks)} chunks" if len(stage.chunks) > 1 else ""
    return (", ".join(parts) or "nothing") + chunks


def _cells(each: StagePlan, plan: Plan) -> tuple[str, ...]:
    bubble_s = each.seconds.get("pipeline bubble", 0.0)
    bubble_s = bubble_s if bubble_s > 1e-9 * plan.step_s else 0.0  # what is left of a difference of equal sums
    return (
        holds(each.stage),
        format_count(each.stage.num_parameters),
        bytes_printed(each.memory.parts).whole,
        format_duration(plan.step_s - bubble_s),
        f"{format_duration(bubble_s)}, {format_percent(bubble_s / plan.step_s)}",
        ", ".join(_remarks(each, plan)),
    )


def _remarks(each: StagePlan, plan: Plan) -> list[str]:
    if len(plan.stages) == 1:
        return []
    return [word for word, which in (("fullest", plan.fullest), ("waits least", plan.slowest)) if each is which]


def _is_marked(each: StagePlan, plan: Plan) -> bool:
    return plan.capacity_bytes is not None and each.memory.peak_bytes > plan.capacity_bytes


def _few(rows: list[tuple[int, int, tuple[str, ...], bool]], plan: Plan) -> tuple[list[Row], str]:
    """At most so many rows: those with a remark, then the first and the last ones."""
    kept = set(range(len(rows)))
    if len(rows) > _MOST_ROWS:
        half = _MOST_ROWS // 2 - 1
        told = {index for index, row in enumerate(rows) if row[2][-1]}
        kept = {*range(half), *range(len(rows) - half, len(rows)), *told}
    shown = [
        Row(
            (_range(first, last), *cells),
            mark="bad" if bad else "",
        )
        for index, (first, last, cells, bad) in enumerate(rows)
        if index in kept
    ]
    left = len(rows) - len(kept)
    note = f"{left} rows between them are left out; --json has all {len(plan.stages)} stages" if left else ""
    return shown, note


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
