"""A plan as one HTML file: headline, charts, every table of the screen, and the answer as JSON inside."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape

from torchledger.planner.outcome import Plan
from torchledger.planner.search import Found
from torchledger.units import group_digits
from torchledger.view.chart import Chart
from torchledger.view.document import chart_section, document, folded, section
from torchledger.view.markup import fragment
from torchledger.view.plan_chart import plan_charts
from torchledger.view.plan_found import found_to_dict
from torchledger.view.plan_layout import headline, plan_screen
from torchledger.view.plan_record import plan_to_dict, question_to_dict
from torchledger.view.plan_search import search_screen
from torchledger.view.record import plain
from torchledger.view.screen import Facts
from torchledger.view.table import ledger_table

DATA_ID = "torchledger-plan"
SCHEMA = "torchledger.plan/1"


def plan_page(plan: Plan, *, found: Found | None = None, currency: str = "USD") -> str:
    """The report of a plan as one HTML document that fetches nothing.

    Args:
        plan: the plan.
        found: the search that found it.
        currency: of its money.
    """
    charts = plan_charts(plan, found)
    title = f"{plan.spec.name} on {group_digits(plan.cluster.num_chips)} × {plan.cluster.chip.name}"
    body = "\n".join(_sections(plan, found, charts, currency))
    return document(title, body, charts, data_id=DATA_ID, data_json=_data(plan, found))


def _sections(plan: Plan, found: Found | None, charts: Mapping[str, Chart], currency: str) -> Iterator[str]:
    yield f"<h1>{escape(headline(plan))}</h1>"
    yield chart_section("A step", charts)
    yield fragment(plan_screen(plan, currency=currency)[1:])
    if found is not None:
        yield section("The search", search_screen(found, top=len(found.best), currency=currency))
    for each in (plan.slowest, plan.fullest) if plan.slowest is not plan.fullest else (plan.slowest,):
        tables = (
            ledger_table(each.ledger, "kind", title="by kind"),
            ledger_table(each.ledger, "phase", title="by phase"),
        )
        yield folded(f"What a rank of stage {each.stage.index} runs in a step", tables)
    facts = tuple((name, str(value)) for name, value in question_to_dict(plan)["cluster"].items())
    yield folded("Cluster", (Facts(facts),))


def _data(plan: Plan, found: Found | None) -> str:
    """The answer as `--json` gives it."""
    answer = plan_to_dict(plan)
    if found is not None:
        answer["search"] = found_to_dict(found)
    told = {
        "schema": SCHEMA,
        "question": question_to_dict(plan),
        "answer": answer,
        "assumptions": list(dict.fromkeys(plan.assumptions)),
    }
    return json.dumps(plain(told), allow_nan=False, default=str)
