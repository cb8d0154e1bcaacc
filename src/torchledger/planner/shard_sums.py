"""What ranks that share a model send beside its weights and gradients: what fills shards up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from torchledger.formula import Parameter, parts
from torchledger.formula.optimizer import trained
from torchledger.formula.precision import FORMATS
from torchledger.formula.value import ELEMENT_BYTES
from torchledger.ledger import Line
from torchledger.planner.block import formula_recipe, gathers_again
from torchledger.planner.shard import num_micro_batches, sharded_spec
from torchledger.planner.stack import stack
from torchledger.planner.stage_ledger import collective
from torchledger.spec import ModelSpec, Recipe, Strategy

__all__ = ["shard_sums", "summed"]

_FP32 = 4


class _Held(NamedTuple):
    """Equal parameters, and whether they are gathered for a backward pass too."""

    parameter: Parameter
    gathers_again: bool


def shard_sums(spec: ModelSpec, recipe: Recipe, strategy: Strategy) -> Iterator[Line]:
    """The lines of one step of torchledger's own trainer, on the rank that holds most.

    - FSDP2 fills the first dimension of each tensor up to a multiple of the ranks that share it, for every gathering
      and for every sum of gradients; what is frozen has none of these.
    """
    if strategy.shard_level != 3 or strategy.num_sharers == 1:
        return
    held = list(_held(spec, recipe, strategy))
    yield from _padding(held, recipe, strategy)


def _held(spec: ModelSpec, recipe: Recipe, strategy: Strategy) -> Iterator[_Held]:
    rules = stack(strategy.stack)
    mine, asked = sharded_spec(spec, strategy, rules), formula_recipe(recipe, strategy, rules)
    for part in parts(mine, asked):
        again = gathers_again(part, spec, rules)
        for each in part.parameters:
            if each.tied_to is None:
                yield _Held(replace(each, times=each.times * part.times), again)


def _padding(held: list[_Held], recipe: Recipe, strategy: Strategy) -> Iterator[Line]:
    """What shards of unequal size are filled up with: gathered and reduced as the rest is."""
    sharers, count = strategy.num_sharers, num_micro_batches(recipe, strategy)
    replicas = strategy.data_parallel * strategy.context_parallel // sharers
    element = int(ELEMENT_BYTES[FORMATS[recipe.precision].stored])
    for each, again in held:
        rows = int(each.shape[0])
        padding = element * (-rows % sharers) * (int(each.num_elements) // rows)
        if not padding:
            continue
        times = count * int(each.times)
        yield _line("all_gather", each.name, padding, sharers, times * (2 if strategy.reshard and again else 1))
        if trained([each]):
            yield _line("reduce_scatter", each.name, padding, sharers, times)
            yield from summed(each.name, padding // sharers, replicas, times)


def summed(what: str, num_bytes: float, ranks: int, times: int = 1) -> Iterator[Line]:
    """An all-reduce of so many bytes over so many ranks; nothing over one.

    >>> [line.work.bytes_sent for line in summed("loss", 8, 4)]  # 2·3/4·8
    [12.0]
    """
    if ranks > 1:
        yield _line("all_reduce", what, num_bytes, ranks, times)


def _line(op: str, what: str, num_bytes: float, ranks: int, times: int) -> Line:
    (piece,) = collective(op, num_bytes, ranks, _FP32)
    return piece.line(what, phase="communication", times=times)
