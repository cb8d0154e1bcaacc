"""What a search found as JSON-ready data: full numbers, keys with their units."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torchledger.planner.search import Found, Offer
from torchledger.planner.search_kept import Candidate


def found_to_dict(found: Found, *, seconds: float | None = None) -> dict[str, Any]:
    """The answer of a search.

    Args:
        found: the result.
        seconds: that the search took.
    """
    return {
        "num_points": found.num_points,
        "num_considered": found.num_considered,
        "num_evaluated": found.num_evaluated,
        "search_s": seconds,
        "capacity_bytes": found.capacity_bytes,
        "axes": dict(found.axes),
        "best": [_candidate(each) for each in found.best],
        "pareto_memory": [_candidate(each) for each in found.pareto_memory],
        "pareto_money": [_offer(each) for each in found.pareto_money],
        "nearest": [_candidate(each) for each in found.nearest],
        "losses": [asdict(each) for each in found.losses],
    }


def _candidate(each: Candidate) -> dict[str, Any]:
    return {
        "strategy": asdict(each.strategy),
        "recompute": each.recipe.recompute,
        "precision": each.recipe.precision,
        "offload_activations": each.recipe.offload_activations,
        "offload_optimizer": each.recipe.offload_optimizer,
        "step_s": each.estimate.step_s,
        "peak_bytes": each.estimate.peak_bytes,
        "cause": each.cause,
        "loses_by": each.loses_by or None,
    }


def _offer(each: Offer) -> dict[str, Any]:
    return {
        "num_chips": each.num_chips,
        "days": each.days,
        "chip_hours": each.chip_hours,
        "money": each.money,
        **_candidate(each.candidate),
    }
