"""What a layout's question leaves open is filled in, and every value that was is told as an assumption."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from torchledger.machine import Cluster
from torchledger.planner.errors import PlanError
from torchledger.planner.stack import stack
from torchledger.spec import Recipe, Strategy
from torchledger.units import format_count, group_digits

#: Fields that only a stack that shards parameters has a use for.
_SHARDED = ("strategy.shard_group", "strategy.reshard")


@dataclass(frozen=True, slots=True)
class Filled:
    """A question with nothing open.

    Attributes:
        recipe, strategy: filled in.
        assumptions: what was filled in, one line each.
    """

    recipe: Recipe
    strategy: Strategy
    assumptions: tuple[str, ...]


def fill(recipe: Recipe, strategy: Strategy, cluster: Cluster, given: frozenset[str], *, searches: bool) -> Filled:
    """Fill in stack, data parallel ranks, batch and micro-batch.

    Args:
        recipe: as read, defaults where nobody said anything.
        strategy: the same.
        cluster: its chips are all used.
        given: dotted places of what was said.
        searches: the layout is searched for, so that data parallel ranks and micro-batches stay open.
    """
    told: list[str] = []
    if "strategy.stack" not in given:
        strategy = replace(strategy, stack=_stack(strategy, given))
        told.append(f"stack {strategy.stack}: its rules for precision, sharding and schedules; --stack says otherwise")
    strategy, overlaps = _overlaps(strategy, given)
    told += overlaps
    if "strategy.data_parallel" not in given and not searches:
        others = strategy.tensor_parallel * strategy.pipeline_parallel * strategy.context_parallel
        strategy = replace(strategy, data_parallel=max(1, cluster.num_chips // others))
    if "strategy.schedule" not in given and strategy.virtual_stages > 1:
        strategy = replace(strategy, schedule="interleaved")
    if "recipe.precision" not in given:
        told.append("precision bf16, as the stack means it; --precision says otherwise")
    if "recipe.sequence_length" not in given:
        length = group_digits(recipe.sequence_length)
        told.append(f"sequences of {length} tokens (the model's longest, at most 8,192); --sequence says otherwise")
    if "recipe.batch_size" not in given:
        recipe = replace(recipe, batch_size=_batch_size(recipe, 1 if searches else strategy.data_parallel))
        tokens = format_count(recipe.tokens_per_step)
        told.append(f"a batch of {group_digits(recipe.batch_size)} sequences, {tokens} tokens; --batch says otherwise")
    if {"strategy.micro_batch_size", "recipe.accumulation_steps"}.isdisjoint(given) and not searches:
        strategy = replace(strategy, micro_batch_size=1)
        told.append("micro-batches of 1 sequence; --micro-batch says otherwise")
    return Filled(recipe, strategy, tuple(told))


def _stack(strategy: Strategy, given: frozenset[str]) -> str:
    """Parameters that are sharded are FSDP's; Megatron-Core has every kind of parallelism."""
    assumed = _assumed()["stack"]
    is_sharded = strategy.shard_level == 3 or any(place in given for place in _SHARDED)
    name: str = assumed["sharded"] if is_sharded else assumed["general"]
    return name


def _overlaps(strategy: Strategy, given: frozenset[str]) -> tuple[Strategy, list[str]]:
    """What runs beside the computing as the stack has it, and what of it is not as elsewhere."""
    try:
        own = stack(strategy.stack)
    except PlanError:  # a rule says it, beside the other mistakes
        return strategy, []
    told = []
    if "strategy.overlap_data" not in given and own.overlap_data != strategy.overlap_data:
        strategy = replace(strategy, overlap_data=own.overlap_data)
        when = "beside the backward pass" if own.overlap_data else "after the last backward pass"
        told.append(f"gradients are reduced {when}, as {own.name} does; --set strategy.overlap_data says otherwise")
    if "strategy.overlap_tensor" not in given and own.overlap_tensor != strategy.overlap_tensor:
        strategy = replace(strategy, overlap_tensor=own.overlap_tensor)
        told.append(f"tensor parallel collectives run beside their matmuls, as in {own.name}")
    return strategy, told


def _batch_size(recipe: Recipe, replicas: int) -> int:
    """Sequences of about so many tokens, equally many for every replica."""
    tokens: int = _assumed()["batch"]["tokens"]
    wanted = tokens / recipe.sequence_length
    return max(1, round(wanted / replicas)) * replicas


@cache
def _assumed() -> dict[str, dict[str, Any]]:
    text = resources.files("torchledger.cli").joinpath("data/assumed.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
