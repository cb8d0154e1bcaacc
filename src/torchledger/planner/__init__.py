"""Ledger times machine gives a plan: will it fit, how long, how much, and what is the best layout. No torch.

The napkin, which needs no model file:

relation.py, printed.py       quantities tied by products, solved in any direction, with their arithmetic
napkin.py, assumed.py         days = 6·N·D / (chips · peak · MFU), one of them open; the MFU where none is given
state.py, holding.py          bytes per parameter, and the largest model that fits
budget.py                     compute-optimal models for a budget or a deadline
claim.py, reading.py, suspects.py, totals.py   which convention, peak and model a printed MFU or TFLOP/s is of
run.py, price.py, energy.py, losses.py, terms.py   days, money, energy and what is lost, of a whole run
rates.py, time.py             a ledger's seconds by curves of one chip, line by line; MFU and HFU
errors.py                     what can be wrong with a question

Layouts, one model for search and full plan:

stack.py, rules*.py, refusal.py   a training stack's own rules; why a layout cannot be, and what would help
shard.py, block.py, exchange.py   the model as one rank runs it, and what ranks send each other
flowing.py                        of that what a backward pass asks for where not all is trained
rank_ledger.py                    the ledger of one rank, sends included, whatever the machine
key_value_heads.py, tensor_sums.py, shard_sums.py, update_sums.py   what ranks send each other, by what they share
assembly.py, stage.py             which blocks each pipeline rank holds
constants.py, chipset.py, efficiency.py   seconds of a kernel; the few numbers that no data sheet gives
fabric*.py, collective.py, host.py         seconds of a collective by algorithm, size and tier; links to the host
piece_cost.py, data_parallel.py, update.py, step.py   seconds of blocks, exchanges, updates, of a step
schedule*.py, simulation.py       pipelines: closed forms, and event by event
memory*.py, totals.py             bytes of a rank by part
estimator.py                      any layout of one question, what is distinct costed once
plan.py, causes.py, stage_ledger.py, time_line.py, outcome.py   one layout in full
search*.py, pareto.py, remedy.py          the whole grid; the fronts; what would make it fit
bound*.py                                 what no layout of a subtree is below: of a rank, a pipeline, in bytes
launch*.py                        flags that start a layout in its stack

Held to measurements:

measured*.py, baseline.py, accuracy.py      published steps as questions, and what is simpler than a model
fitted.py, calibration.py                   constants fitted to measured rows, with an interval
held_out.py, calibration_file.py            whether the fit is worth it; the constants on disk
doubt.py                                    rows too far off to be fitted
likeness.py, algebra.py                     what a measured step tells of a question like it
informative.py                              which few runs to measure
hindsight.py                                what no constants could have left less of

Names of layouts are loaded when they are first used, so that the napkin answers without them. A function that is
called as its file is comes from there: `from torchledger.planner.plan import plan`, `.search import search`,
`.stack import stack`, `.launch import launch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchledger.planner.assumed import AssumedMfu, assumed_mfu
from torchledger.planner.errors import Contradiction, LayoutRefused, PlanError, Underdetermined
from torchledger.planner.holding import Holding
from torchledger.planner.napkin import QUANTITIES, Napkin, solve
from torchledger.planner.rates import Rates
from torchledger.planner.state import OPTIMIZERS, PRECISIONS, StateBytes, state_bytes
from torchledger.planner.terms import RunTerms
from torchledger.planner.time import LineTime, StepTime, hfu, mfu, step_time

if TYPE_CHECKING:
    from torchledger.planner.calibration import fit
    from torchledger.planner.calibration_file import read_fitted
    from torchledger.planner.constants import Constants, default_constants
    from torchledger.planner.estimator import Estimator
    from torchledger.planner.fitted import Fitted
    from torchledger.planner.measured import MeasuredRow, read_rows
    from torchledger.planner.outcome import Estimate, Plan, StageMemory, StagePlan
    from torchledger.planner.refusal import Refusal
    from torchledger.planner.remedy import Remedy, remedies
    from torchledger.planner.rules import refusals
    from torchledger.planner.search import Found
    from torchledger.planner.search_costs import LayoutCosts
    from torchledger.planner.search_grid import Axes
    from torchledger.planner.stack import Stack, stacks

#: Public name of layouts -> the file that has it.
_LAYOUTS = {
    "Axes": "search_grid",
    "Constants": "constants",
    "Estimate": "outcome",
    "Estimator": "estimator",
    "Fitted": "fitted",
    "Found": "search",
    "LayoutCosts": "search_costs",
    "MeasuredRow": "measured",
    "Plan": "outcome",
    "Refusal": "refusal",
    "Remedy": "remedy",
    "Stack": "stack",
    "StageMemory": "outcome",
    "StagePlan": "outcome",
    "default_constants": "constants",
    "fit": "calibration",
    "read_fitted": "calibration_file",
    "read_rows": "measured",
    "refusals": "rules",
    "remedies": "remedy",
    "stacks": "stack",
}

__all__ = [
    "OPTIMIZERS",
    "PRECISIONS",
    "QUANTITIES",
    "AssumedMfu",
    "Axes",
    "Constants",
    "Contradiction",
    "Estimate",
    "Estimator",
    "Fitted",
    "Found",
    "Holding",
    "LayoutCosts",
    "LayoutRefused",
    "LineTime",
    "MeasuredRow",
    "Napkin",
    "Plan",
    "PlanError",
    "Rates",
    "Refusal",
    "Remedy",
    "RunTerms",
    "Stack",
    "StageMemory",
    "StagePlan",
    "StateBytes",
    "StepTime",
    "Underdetermined",
    "assumed_mfu",
    "default_constants",
    "fit",
    "hfu",
    "mfu",
    "read_fitted",
    "read_rows",
    "refusals",
    "remedies",
    "solve",
    "stacks",
    "state_bytes",
    "step_time",
]


def __getattr__(name: str) -> Any:
    """Load a name of layouts when it is first used."""
    if name not in _LAYOUTS:
        raise AttributeError(f"module 'torchledger.planner' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"torchledger.planner.{_LAYOUTS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
