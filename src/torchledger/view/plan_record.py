"""A plan as JSON-ready data: full numbers, keys with their units. The time line is a file of its own (`--timeline`)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torchledger.ledger import MODEL_FLOPS
from torchledger.machine import Cluster
from torchledger.planner.outcome import Plan, StagePlan
from torchledger.spec import ModelSpec, Recipe, Strategy


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """The answer: totals, then every stage. What is unknown is `None`."""
    return {
        "fits": plan.fits,
        "step_s": plan.step_s,
        "expected_step_s": plan.expected_s,
        "step_interval_s": plan.interval_s,
        "tokens_per_s": plan.tokens_per_s,
        "mfu": plan.mfu,
        "hfu": plan.hfu,
        "convention": MODEL_FLOPS.text,
        "model_flops": plan.model_flops,
        "hardware_flops": plan.hardware_flops,
        "peak_bytes": plan.peak_bytes,
        "capacity_bytes": plan.capacity_bytes,
        "days": plan.days,
        "chip_hours": plan.chip_hours,
        "money": plan.money,
        "energy_j": plan.energy_j,
        "carbon_kg": plan.carbon_kg,
        "losses": dict(plan.losses),
        "slowest_stage": plan.slowest.stage.index,
        "fullest_stage": plan.fullest.stage.index,
        "stages": [_stage(each) for each in plan.stages],
    }


def question_to_dict(plan: Plan) -> dict[str, Any]:
    """What was asked, with everything that was filled in."""
    return asked_to_dict(plan.spec, plan.recipe, plan.strategy, plan.cluster)


def asked_to_dict(spec: ModelSpec, recipe: Recipe, strategy: Strategy, cluster: Cluster) -> dict[str, Any]:
    """The same of a question that has no plan."""
    return {
        "model": asdict(spec),
        "recipe": asdict(recipe),
        "strategy": asdict(strategy),
        "cluster": {
            "chip": cluster.chip.key,
            "num_chips": cluster.num_chips,
            "chips_per_island": cluster.chips_per_island,
            "scale_up": None if cluster.scale_up is None else asdict(cluster.scale_up),
            "network": None if cluster.network is None else asdict(cluster.network),
        },
    }


def _stage(each: StagePlan) -> dict[str, Any]:
    blocks = [
        {"chunk": chunk, "block": block.name, "times": times, "num_parameters": block.num_parameters}
        for chunk, pairs in enumerate(each.stage.chunks)
        for block, times in pairs
    ]
    return {
        "stage": each.stage.index,
        "num_parameters": each.stage.num_parameters,
        "blocks": blocks,
        "micro_batches_in_flight": each.stage.in_flight,
        "peak_bytes": each.memory.peak_bytes,
        "host_bytes": each.memory.host_bytes,
        "parts_bytes": dict(each.memory.parts),
        "causes_s": dict(each.seconds),
    }
