"""What a plan leaves behind: a trace for Perfetto, a report as one HTML file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchledger.planner.outcome import Plan
    from torchledger.planner.search import Found


def write_files(plan: Plan, options: Mapping[str, Any], *, found: Found | None = None, currency: str = "USD") -> None:
    """Write the files that were asked for, and tell which.

    Args:
        plan: the plan.
        options: that were typed.
        found: the search that found it.
        currency: of its money.

    Raises:
        OSError: a file cannot be written.
    """
    from torchledger.cli.output import note

    for path, text in _texts(plan, options, found, currency):
        path.write_text(text, encoding="utf-8")
        note(f"written: {path}")


def _texts(plan: Plan, options: Mapping[str, Any], found: Found | None, currency: str) -> Iterator[tuple[Path, str]]:
    if timeline := options.get("timeline"):
        from torchledger.planner.errors import PlanError
        from torchledger.view.timeline import trace_json

        if not any(stage.time_line for stage in plan.stages):
            raise PlanError("--timeline: a step of so many passes has no time line; ask for a smaller --batch")
        yield timeline, trace_json(plan)
    if report := options.get("report"):
        from torchledger.view.plan_page import plan_page

        yield report, plan_page(plan, found=found, currency=currency)
