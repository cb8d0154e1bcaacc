"""`plan`: one layout in full: ledger, memory and seconds of every stage, and what the whole run costs.

The numbers are the estimator's own; the plan adds the ledgers, the causes of every second and the time line, and says
what was assumed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from statistics import NormalDist
from typing import Any

from torchledger.formula import count
from torchledger.ledger import HARDWARE_FLOPS, MODEL_FLOPS, Ledger
from torchledger.machine import Chip, Cluster
from torchledger.planner.block import kernels_of_stack, meant_precision, stream_bytes_of
from torchledger.planner.causes import stage_seconds
from torchledger.planner.constants import Constants
from torchledger.planner.energy import carbon_kg, power
from torchledger.planner.estimator import Estimator
from torchledger.planner.host import host_notes
from torchledger.planner.losses import losses_of_run
from torchledger.planner.outcome import Plan, StagePlan
from torchledger.planner.rules import layout_notes, refuse_impossible
from torchledger.planner.stack import Stack, stack
from torchledger.planner.stage_ledger import stage_ledger
from torchledger.planner.step import StepCost, StepRules
from torchledger.planner.terms import RunTerms
from torchledger.planner.time_line import MOST_PASSES, num_passes, time_lines
from torchledger.spec import ModelSpec, Recipe, Strategy
from torchledger.units import group_digits

_S_PER_DAY = 86400


def plan(
    spec: ModelSpec,
    recipe: Recipe,
    strategy: Strategy,
    cluster: Cluster,
    *,
    constants: Constants | None = None,
    terms: RunTerms | None = None,
    estimator: Estimator | None = None,
) -> Plan:
    """Plan a training run in a given layout.

    Args:
        spec: the model.
        recipe: how it is trained; without `num_tokens` the whole run's cost is unknown.
        strategy: the layout; its ranks are the cluster's chips.
        cluster: where.
        constants: fitted ones; nothing is the defaults of the chip.
        terms: price, power, losses.
        estimator: one of the same question, to share what it remembers.

    Raises:
        LayoutRefused: the layout cannot be; every reason with its remedy.
        PlanError: a fact of the chip that is needed is unknown.
    """
    refuse_impossible(spec, recipe, strategy, cluster)
    terms = RunTerms() if terms is None else terms
    estimator = Estimator(spec, recipe, cluster, constants=constants) if estimator is None else estimator
    step = estimator.step(strategy)
    plans = tuple(_stage_plans(estimator, strategy, step))
    whole = _whole_step(spec, recipe, stack(strategy.stack))
    model_flops = float(whole.under(MODEL_FLOPS).flops or 0)
    hardware_flops = float(whole.under(HARDWARE_FLOPS).flops or 0)
    peak = peak_of(cluster.chip, recipe) * cluster.num_chips
    return _whole_run(
        Plan(
            spec=spec,
            recipe=recipe,
            strategy=strategy,
            cluster=cluster,
            stages=plans,
            step_s=step.step_s,
            interval_s=interval_s(step.step_s, estimator.constants),
            model_flops=model_flops,
            hardware_flops=hardware_flops,
            mfu=model_flops / (step.step_s * peak),
            hfu=hardware_flops / (step.step_s * peak),
            tokens_per_s=recipe.tokens_per_step / step.step_s,
            capacity_bytes=estimator.capacity_bytes,
            days=None,
            chip_hours=None,
            money=None,
            energy_j=None,
            carbon_kg=None,
            losses={},
            assumptions=(*assumptions(estimator, strategy), *_undrawn(step, estimator.rules(strategy))),
        ),
        terms,
    )


def _whole_step(spec: ModelSpec, recipe: Recipe, rules: Stack) -> Ledger:
    """The step of the whole model on one rank, with the kernels of the stack: what MFU and HFU count."""
    asked = replace(
        recipe,
        accumulation_steps=1,
        precision=meant_precision(recipe, rules),
        attention="math" if "math" in {recipe.attention, rules.attention} else "fused",
    )
    return count(spec, asked, kernels=kernels_of_stack(rules))


def _stage_plans(estimator: Estimator, strategy: Strategy, step: StepCost) -> Iterator[StagePlan]:
    rules = estimator.rules(strategy)
    lines = time_lines(strategy, step, rules)
    exchanges = {piece.block: piece.exchanges for piece in estimator.costed(strategy).pieces}
    costed = estimator.stages(strategy)
    own = stack(strategy.stack)
    meant: dict[str, Any] = {"precision": own.precision(estimator.recipe.precision)}
    recipe = replace(estimator.recipe, **meant)
    size = stream_bytes_of(estimator.recipe, own)
    for stage, chunks, slots in zip(estimator.held(strategy), costed, lines, strict=True):
        ledger = stage_ledger(stage, exchanges, strategy, rules, recipe, element_bytes=size)
        seconds = stage_seconds(
            chunks, stage.index, step, strategy, rules, fabric=estimator.fabric, constants=estimator.constants
        )
        yield StagePlan(stage, ledger, estimator.memory(strategy, stage), seconds, slots)


def peak_of(chip: Chip, recipe: Recipe) -> float:
    """The dense peak that MFU divides by: of the format that the layers' matmuls run in.

    Raises:
        NoPeak: the chip cannot run it.
    """
    word = recipe.precision.partition("-")[0]
    return chip.peak({"mxfp8": "fp8", "nvfp4": "fp4"}.get(word, word))


def interval_s(step_s: float, constants: Constants) -> tuple[float, float] | None:
    """Where a measured step lies with 90 % probability: the error of the constants on clusters that they never saw.

    >>> low, high = interval_s(10.0, Constants(sigma=0.1))
    >>> round(low, 2), round(high, 2)  # 10·exp(∓1.645·0.1)
    (8.48, 11.79)
    """
    if constants.sigma is None:
        return None
    half = NormalDist().inv_cdf(0.95) * constants.sigma
    return step_s * math.exp(-half), step_s * math.exp(half)


def assumptions(estimator: Estimator, strategy: Strategy) -> tuple[str, ...]:
    """What a layout's figures rest on."""
    rules = stack(strategy.stack)
    constants = estimator.constants
    meant = meant_precision(estimator.recipe, rules)
    found = [
        f"stack: {rules.name} ({rules.description}), kernels {rules.kernels!r}",
        *(
            [f"precision {estimator.recipe.precision} means {meant} there"]
            if meant != estimator.recipe.precision
            else []
        ),
        f"time: {constants.source}",
        "MFU counts contractions, attention in full, recompute left out (PaLM, arXiv:2204.02311, appendix B)",
        *host_notes(estimator.recipe, estimator.host),
        *rules.notes,
        *layout_notes(strategy, estimator.cluster),
        *estimator.spec.notes,
    ]
    return tuple(dict.fromkeys(found))


def _undrawn(step: StepCost, rules: StepRules) -> tuple[str, ...]:
    """Why there is no time line, where there is none."""
    if (passes := num_passes(step, rules)) <= MOST_PASSES:
        return ()
    told = f"{group_digits(passes)} forward passes a step, at most {group_digits(MOST_PASSES)} are simulated"
    return (f"no time line: {told}; seconds and bytes do not rest on it (a smaller --batch has one)",)


def _whole_run(plan: Plan, terms: RunTerms) -> Plan:
    """The plan with days, money, energy and losses of the run, where its tokens are known; terms are judged anyway."""
    run_s = max(1, plan.recipe.num_steps) * plan.step_s
    lost = losses_of_run(plan.spec, plan.cluster, run_s, terms)
    chip_hours = plan.cluster.num_chips * lost.wall_s / 3600
    drawn = power(plan.cluster.chip, tdp_share=terms.tdp_share, host_w=terms.host_w, pue=terms.pue)
    energy = None if drawn is None else drawn.watts * plan.cluster.num_chips * lost.wall_s
    carbon = carbon_kg(energy, terms.carbon_g_per_kwh)
    if not plan.recipe.num_tokens:
        return plan
    price = terms.price_per_chip_hour
    notes = (*lost.assumptions, *(drawn.assumptions if drawn else ()))
    return replace(
        plan,
        days=lost.wall_s / _S_PER_DAY,
        chip_hours=chip_hours,
        money=None if price is None else price * chip_hours,
        energy_j=energy,
        carbon_kg=carbon,
        losses=lost.shares,
        assumptions=tuple(dict.fromkeys((*plan.assumptions, *notes))),
    )
