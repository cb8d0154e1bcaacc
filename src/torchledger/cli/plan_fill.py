"""What a layout's question leaves open is filled in, and every value that was is told as an assumption."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources

from torchledger.machine import Cluster
from torchledger.spec import Recipe, Strategy
from torchledger.spec.check import Mistake
from torchledger.units import format_count, group_digits

#: Fields that only a stack that shards parameters has a use for.
_SHARDED = ("strategy.shard_group", "strategy.reshard")


@dataclass(frozen=True, slots=True)
class Filled:
    """A question with nothing open.

    Attributes:
        recipe, strategy: filled in.
        assumptions: what was filled in, one line each.
        mistakes: what cannot be filled in.
    """

    recipe: Recipe
    strategy: Strategy
    assumptions: tuple[str, ...]
    mistakes: tuple[Mistake, ...]


def fill(recipe: Recipe, strategy: Strategy, cluster: Cluster, given: frozenset[str]) -> Filled:
    """Fill in stack, data parallel ranks, batch and micro-batch.

    Args:
        recipe: as read, defaults where nobody said anything.
        strategy: the same.
        cluster: its chips are all used.
        given: dotted places of what was said.
    """
    told: list[str] = []
    if "strategy.stack" not in given:
        strategy = replace(strategy, stack=_stack(strategy, given))
        told.append(f"stack {strategy.stack}: its rules for precision, sharding and schedules; --stack says otherwise")
    strategy, mistakes = _with_data_parallel(strategy, cluster, given)
    if "recipe.precision" not in given:
        told.append("precision bf16, as the stack means it; --precision says otherwise")
    if "recipe.sequence_length" not in given:
        length = group_digits(recipe.sequence_length)
        told.append(f"sequences of {length} tokens (the model's longest, at most 8,192); --sequence says otherwise")
    if "recipe.batch_size" not in given:
        recipe = replace(recipe, batch_size=_batch_size(recipe, strategy))
        tokens = format_count(recipe.tokens_per_step)
        told.append(f"a batch of {group_digits(recipe.batch_size)} sequences, {tokens} tokens; --batch says otherwise")
    if {"strategy.micro_batch_size", "recipe.accumulation_steps"}.isdisjoint(given) and not mistakes:
        strategy = replace(strategy, micro_batch_size=1)
        if any(each.startswith("strategy.") and each != "strategy.stack" for each in given):
            told.append("micro-batches of 1 sequence; --micro-batch says otherwise")
    if not mistakes:
        mistakes = tuple(_batch_mistakes(recipe, strategy))
    return Filled(recipe, strategy, tuple(told), mistakes)


def _stack(strategy: Strategy, given: frozenset[str]) -> str:
    """Megatron-Core has every kind of parallelism; parameters that are sharded are FSDP's."""
    assumed = _assumed()["stack"]
    sharded = strategy.shard_level == 3 or any(place in given for place in _SHARDED)
    name: str = assumed["sharded"] if sharded else assumed["general"]
    return name


def _with_data_parallel(
    strategy: Strategy, cluster: Cluster, given: frozenset[str]
) -> tuple[Strategy, tuple[Mistake, ...]]:
    """Data parallel ranks are what the others leave of the chips."""
    others = strategy.tensor_parallel * strategy.pipeline_parallel * strategy.context_parallel
    sizes = f"tp {strategy.tensor_parallel} · pp {strategy.pipeline_parallel} · cp {strategy.context_parallel}"
    chips = cluster.num_chips
    if "strategy.data_parallel" not in given:
        if chips % others:
            fewer, more = chips // others * others, -(-chips // others) * others
            near = f"{more} chips" if not fewer else f"{fewer} or {more} chips"
            message = f"{chips} chips are no multiple of {sizes} = {others}; take {near}, or sizes that divide {chips}"
            return strategy, (("--on", message),)
        return replace(strategy, data_parallel=chips // others), ()
    ranks = others * strategy.data_parallel
    if ranks != chips:
        message = f"dp {strategy.data_parallel} · {sizes} = {ranks} ranks, but there are {chips} chips"
        remedy = f"take --dp {chips // others}" if chips % others == 0 else f"take {ranks} chips"
        return strategy, (("--dp", f"{message}; {remedy}, or leave --dp out"),)
    return strategy, ()


def _batch_size(recipe: Recipe, strategy: Strategy) -> int:
    """Sequences of about so many tokens, equally many for every replica."""
    wanted = _assumed()["batch"]["tokens"] // recipe.sequence_length
    replicas = strategy.data_parallel
    return max(1, round(wanted / replicas)) * replicas


def _batch_mistakes(recipe: Recipe, strategy: Strategy) -> Iterator[Mistake]:
    replicas, micro = strategy.data_parallel, strategy.micro_batch_size
    together = replicas * max(micro, 1)
    if recipe.batch_size % together:
        near = max(1, round(recipe.batch_size / together)) * together
        message = (
            f"{recipe.batch_size} sequences are no multiple of dp {replicas} · micro-batch {max(micro, 1)} ="
            f" {together}; take {near}"
        )
        yield "recipe.batch_size", message


def _assumed() -> dict[str, dict[str, int | str]]:
    text = resources.files("torchledger.cli").joinpath("data/assumed.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
