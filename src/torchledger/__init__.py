"""torchledger: the books of a training run. FLOPs, bytes, seconds and money; predicted, trained, measured, reconciled.

    >>> import torchledger
    >>> model = torchledger.load_spec("llama-3-8b")
    >>> torchledger.num_parameters(model)
    8030261248
    >>> torchledger.count(model).flops
    474422087516160

The names below are the public ones. Importing this package loads none of them: neither torch nor numpy nor rich until
a name is used that needs it. Rooms (`torchledger.formula`, `torchledger.tracer` ...) may be imported as well.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as `typing` has it, which would be most of the time that importing this package takes
if TYPE_CHECKING:
    from typing import Any

    from torchledger.auditor import Subject, audit, explain
    from torchledger.formula.count import count
    from torchledger.formula.parameters import num_parameters, parameters
    from torchledger.formula.symbolic import polynomial
    from torchledger.ledger import HARDWARE_FLOPS, MODEL_FLOPS, Convention, Difference, Ledger, Line, RunRecord, Work
    from torchledger.machine import get as get_chip
    from torchledger.machine import parse_cluster
    from torchledger.memory import AllocatorSettings, reserve
    from torchledger.planner import Rates, hfu, mfu, solve, step_time
    from torchledger.planner.plan import plan
    from torchledger.spec import ModelSpec, Recipe, Strategy
    from torchledger.spec import load as load_spec
    from torchledger.tracer import Change, Recorder, Trace, max_batch, max_sequence, ranks, trace, trace_step, what_if
    from torchledger.tracer.pricing import price_of
    from torchledger.trainer import RunConfig, train
    from torchledger.trainer.prepare import prepare
    from torchledger.view.page import page as report_page

__version__ = "0.1.0"

#: Public name -> the module and the name there.
_PUBLIC = {
    "HARDWARE_FLOPS": ("ledger", "HARDWARE_FLOPS"),
    "MODEL_FLOPS": ("ledger", "MODEL_FLOPS"),
    "AllocatorSettings": ("memory", "AllocatorSettings"),
    "Change": ("tracer", "Change"),
    "Convention": ("ledger", "Convention"),
    "Difference": ("ledger", "Difference"),
    "Ledger": ("ledger", "Ledger"),
    "Line": ("ledger", "Line"),
    "ModelSpec": ("spec", "ModelSpec"),
    "Rates": ("planner", "Rates"),
    "Recipe": ("spec", "Recipe"),
    "Recorder": ("tracer", "Recorder"),
    "RunConfig": ("trainer", "RunConfig"),
    "RunRecord": ("ledger", "RunRecord"),
    "Strategy": ("spec", "Strategy"),
    "Subject": ("auditor", "Subject"),
    "Trace": ("tracer", "Trace"),
    "Work": ("ledger", "Work"),
    "audit": ("auditor", "audit"),
    "count": ("formula", "count"),
    "explain": ("auditor", "explain"),
    "get_chip": ("machine", "get"),
    "hfu": ("planner", "hfu"),
    "load_spec": ("spec", "load"),
    "max_batch": ("tracer", "max_batch"),
    "max_sequence": ("tracer", "max_sequence"),
    "mfu": ("planner", "mfu"),
    "num_parameters": ("formula", "num_parameters"),
    "parameters": ("formula", "parameters"),
    "parse_cluster": ("machine", "parse_cluster"),
    "plan": ("planner.plan", "plan"),
    "polynomial": ("formula", "polynomial"),
    "prepare": ("trainer.prepare", "prepare"),
    "price_of": ("tracer.pricing", "price_of"),
    "ranks": ("tracer", "ranks"),
    "report_page": ("view.page", "page"),
    "reserve": ("memory", "reserve"),
    "solve": ("planner", "solve"),
    "step_time": ("planner", "step_time"),
    "trace": ("tracer", "trace"),
    "trace_step": ("tracer", "trace_step"),
    "train": ("trainer", "train"),
    "what_if": ("tracer", "what_if"),
}

__all__ = [
    "HARDWARE_FLOPS",
    "MODEL_FLOPS",
    "AllocatorSettings",
    "Change",
    "Convention",
    "Difference",
    "Ledger",
    "Line",
    "ModelSpec",
    "Rates",
    "Recipe",
    "Recorder",
    "RunConfig",
    "RunRecord",
    "Strategy",
    "Subject",
    "Trace",
    "Work",
    "audit",
    "count",
    "explain",
    "get_chip",
    "hfu",
    "load_spec",
    "max_batch",
    "max_sequence",
    "mfu",
    "num_parameters",
    "parameters",
    "parse_cluster",
    "plan",
    "polynomial",
    "prepare",
    "price_of",
    "ranks",
    "report_page",
    "reserve",
    "solve",
    "step_time",
    "trace",
    "trace_step",
    "train",
    "what_if",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used; and tell ledgers how they look, so that they print as tables."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'torchledger' has no attribute {name!r}")
    import importlib

    importlib.import_module("torchledger.view.notebook").register()
    module, attribute = _PUBLIC[name]
    value = getattr(importlib.import_module(f"torchledger.{module}"), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
