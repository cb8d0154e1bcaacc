"""`rank_ledger`: what one rank of a layout runs and sends in a step, whatever the machine. No pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torchledger.formula import parameters
from torchledger.formula.optimizer import trained
from torchledger.ledger import Ledger, Line
from torchledger.planner.block import Piece, pieces, stream_format
from torchledger.planner.data_parallel import data_rules
from torchledger.planner.key_value_heads import cutters_of
from torchledger.planner.shard import num_micro_batches, sharded_spec
from torchledger.planner.shard_sums import shard_sums, summed
from torchledger.planner.stack import Stack, stack
from torchledger.planner.stage import Stage
from torchledger.planner.stage_ledger import exchange_line, stage_ledger
from torchledger.planner.step import StepRules
from torchledger.planner.tensor_sums import tensor_sums
from torchledger.planner.update_sums import update_sums
from torchledger.spec import ModelSpec, Recipe, Strategy

__all__ = ["rank_ledger"]

_FP32, _INT64 = 4, 8


def rank_ledger(spec: ModelSpec, recipe: Recipe, strategy: Strategy, *, kernels: str | None = None) -> Ledger:
    """The ledger of one rank's step, collectives included, by the rules of the layout's stack.

    Where a size does not divide, it is that of the rank that holds most, which is the first.

    Args:
        spec: the whole model.
        recipe: the whole recipe.
        strategy: a layout without pipeline stages that its stack can run.
        kernels: name of the set that the rank runs (`formula.KERNELS`), where it is not the stack's.

    Two replicas each send their gradients once around a ring of two, 2·1/2 of their bytes:

    >>> from torchledger.formula import num_parameters
    >>> from torchledger.spec import AttentionSpec, MlpSpec
    >>> tiny = ModelSpec("tiny", 100, 64, 2, 32, AttentionSpec(4), MlpSpec(64))
    >>> ledger = rank_ledger(tiny, Recipe(batch_size=2, sequence_length=8), Strategy(data_parallel=2))
    >>> sent = sum(line.total.bytes_sent for line in ledger if line.kind == "collective")
    >>> sent == 4 * num_parameters(tiny) + 8 + 8  # loss and signal; number of targets
    True
    """
    assert strategy.pipeline_parallel == 1
    rules = stack(strategy.stack)
    rules = rules if kernels is None else replace(rules, kernels=kernels)
    ledger = _by_stage(spec, recipe, strategy, rules)
    return Ledger.of([*ledger, *small_sums(spec, recipe, strategy)], convention=ledger.convention)


def _by_stage(spec: ModelSpec, recipe: Recipe, strategy: Strategy, rules: Stack) -> Ledger:
    found = pieces(spec, recipe, strategy, rules)
    blocks = tuple((each.block, max(1, each.num_layers)) for each in found)
    step = StepRules(
        num_micro_batches=num_micro_batches(recipe, strategy),
        send_bytes=0.0,
        optimizer_s_per_parameter=0.0,
        data=data_rules(recipe, strategy, rules, rules.precision(recipe.precision)),
        doublings=0.0,
    )
    element_bytes = 4 if stream_format(recipe, rules) == "fp32" else 2
    exchanges = {each.block: tuple(e for e in each.exchanges if e.phase != "recompute") for each in found}
    ledger = stage_ledger(Stage(0, (blocks,), (1.0,)), exchanges, strategy, step, recipe, element_bytes=element_bytes)
    again = [
        exchange_line(exchange, strategy, element_bytes).repeated(_num_again(each, recipe) * step.num_micro_batches)
        for each in found
        for exchange in each.exchanges
        if exchange.phase == "recompute" and _num_again(each, recipe)
    ]
    return Ledger.of([*ledger, *again], convention=ledger.convention)


def _num_again(piece: Piece, recipe: Recipe) -> int:
    """How many of such layers run again; all prediction layers do, or none."""
    if recipe.recompute != "full" or piece.block.kind == "prediction":
        return piece.num_layers
    layers = (range(first, first + count) for first, count in piece.runs)
    return sum(recipe.recomputes_layer(index) for run in layers for index in run)


def small_sums(spec: ModelSpec, recipe: Recipe, strategy: Strategy) -> Iterator[Line]:
    """What torchledger's own trainer sends beside: `shard_sums`, `tensor_sums`, `update_sums`, and a few numbers.

    - Under a loss scale of FP16 ranks of shares tell each other whether a gradient is not finite.
    - The norm of the gradients is a number of each rank, added up along every mesh dimension that shards any.
    - Replicas add up how many targets count, those of each prediction layer apart: the mean is over all of them.
    - All ranks bring their losses together, and tell each other of signals: two numbers.
    """
    sharers = strategy.num_sharers if strategy.shard_level == 3 else 1
    yield from shard_sums(spec, recipe, strategy)
    yield from tensor_sums(spec, recipe, strategy)
    yield from update_sums(spec, recipe, strategy)
    if recipe.precision == "fp16" and (strategy.tensor_parallel > 1 or strategy.shard_level == 3):
        yield from summed("overflow", _FP32, strategy.num_ranks)
    if recipe.optimizer.gradient_clip > 0:
        for ranks in (*sorted(_cutters_of_trained(spec, recipe, strategy)), sharers):
            yield from summed("gradient norm", _FP32, ranks)
    if strategy.data_parallel > 1:
        yield from summed("number of targets", _INT64 * (1 + spec.num_prediction_layers), strategy.num_ranks)
    yield from summed("loss and signal", 2 * _FP32, strategy.num_ranks)


def _cutters_of_trained(spec: ModelSpec, recipe: Recipe, strategy: Strategy) -> set[int]:
    """Numbers of tensor parallel ranks that split what is trained: all; of key-value heads maybe fewer.

    Of a last norm alone they split nothing.
    """
    if strategy.tensor_parallel == 1:
        return set()
    whole = {each.name: each.num_elements for each in trained(parameters(spec, recipe))}
    mine = trained(parameters(sharded_spec(spec, strategy, stack(strategy.stack)), recipe))
    return {cutters_of(each.name, spec, strategy) for each in mine if each.num_elements != whole[each.name]}
