"""`rank_ledger`: what one rank of a layout runs and sends in a step, whatever the machine. No pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torchledger.formula import parameters
from torchledger.ledger import Ledger, Line
from torchledger.planner.block import pieces, stream_format
from torchledger.planner.data_parallel import data_rules
from torchledger.planner.shard import num_micro_batches, sharded_spec
from torchledger.planner.shard_sums import shard_sums, summed
from torchledger.planner.stack import stack
from torchledger.planner.stage import Stage
from torchledger.planner.stage_ledger import stage_ledger
from torchledger.planner.step import StepRules
from torchledger.spec import ModelSpec, Recipe, Strategy

__all__ = ["rank_ledger"]

_FP32, _INT64 = 4, 8


def rank_ledger(spec: ModelSpec, recipe: Recipe, strategy: Strategy) -> Ledger:
    """The ledger of one rank's step, collectives included, by the rules of the layout's stack.

    Where a size does not divide, it is that of the rank that holds most, which is the first.

    Args:
        spec: the whole model.
        recipe: the whole recipe.
        strategy: a layout without pipeline stages that its stack can run.

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
    ledger = _by_stage(spec, recipe, strategy)
    lines = _of_some_layers(ledger, spec, recipe, strategy) if _is_partial(recipe) else ledger
    return Ledger.of([*lines, *small_sums(spec, recipe, strategy)], convention=ledger.convention)


def _is_partial(recipe: Recipe) -> bool:
    return recipe.recompute == "full" and (recipe.recompute_every != 1 or recipe.recompute_layers != 0)


def _of_some_layers(all_again: Ledger, spec: ModelSpec, recipe: Recipe, strategy: Strategy) -> Iterator[Line]:
    """The lines where some layers run again; blocks know of all or none.

    Every layer sends as much as the others, so that a collective runs as often as between the two, by their share.
    """
    never = _by_stage(spec, replace(recipe, recompute="none"), strategy)
    least = {replace(line, times=1): line.times for line in never if line.kind == "collective"}
    num_again = sum(map(recipe.recomputes_layer, range(spec.num_layers)))
    for line in all_again:
        if line.kind != "collective":
            yield line
            continue
        once = least.get(replace(line, times=1), 0)
        more, rest = divmod((line.times - once) * num_again, spec.num_layers)
        assert rest == 0, line
        if once + more:
            yield replace(line, times=once + more)


def _by_stage(spec: ModelSpec, recipe: Recipe, strategy: Strategy) -> Ledger:
    rules = stack(strategy.stack)
    found = pieces(spec, recipe, strategy, rules)
    blocks = tuple((each.block, max(1, each.num_layers)) for each in found)
    step = StepRules(
        num_micro_batches=num_micro_batches(recipe, strategy),
        send_bytes=0.0,
        optimizer_s_per_parameter=0.0,
        data=data_rules(recipe, strategy, rules, rules.precision(recipe.precision)),
        doublings=0.0,
    )
    return stage_ledger(
        Stage(0, (blocks,), (1.0,)),
        {each.block: each.exchanges for each in found},
        strategy,
        step,
        recipe,
        element_bytes=4 if stream_format(recipe, rules) == "fp32" else 2,
    )


def small_sums(spec: ModelSpec, recipe: Recipe, strategy: Strategy) -> Iterator[Line]:
    """What torchledger's own trainer sends beside: what `shard_sums` says, and it adds up a few numbers.

    - A rank's share of tokens or heads gives a share of the gradient of a norm, of a position.
    - The norm of the gradients is a number of each rank, added up along every mesh dimension that shards.
    - Replicas add up how many targets count, those of each prediction layer apart: the mean is over all of them.
    - All ranks bring their losses together, and tell each other of signals: two numbers.
    """
    sharers = strategy.num_sharers if strategy.shard_level == 3 else 1
    tensor, count = strategy.tensor_parallel, num_micro_batches(recipe, strategy)
    mine = parameters(sharded_spec(spec, strategy, stack(strategy.stack)), recipe)
    held = [each for each in mine if each.tied_to is None]
    yield from shard_sums(spec, recipe, strategy)
    if tensor > 1:
        times = count if sharers > 1 else 1
        for each in held:
            if _is_shared(each.name, strategy):
                yield from summed(each.name, _FP32 * int(each.num_elements), tensor, times * int(each.times))
    if recipe.optimizer.gradient_clip > 0:
        for ranks in (tensor, sharers):
            yield from summed("gradient norm", _FP32, ranks)
    if strategy.data_parallel > 1:
        yield from summed("number of targets", _INT64 * (1 + spec.num_prediction_layers), strategy.num_ranks)
    yield from summed("loss and signal", 2 * _FP32, strategy.num_ranks)


def _is_shared(name: str, strategy: Strategy) -> bool:
    """Whether tensor parallel ranks each have a share of a whole parameter's gradient."""
    if name.endswith(("query_norm.weight", "key_norm.weight", "query_norm.bias", "key_norm.bias")):
        return True
    return strategy.sequence_parallel and ("norm." in name or name.startswith("position_embedding"))
