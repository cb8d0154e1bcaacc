"""What data parallel ranks exchange in a step, how much of it shows, and what the optimizer takes.

ZeRO (Rajbhandari et al., arXiv:1910.02054, section 7): level 0 all-reduces gradients; levels 1 and 2 reduce-scatter
them and gather the updated weights; level 3 gathers each layer's weights before its forward and its backward pass and
reduce-scatters its gradients after that. Level 2 keeps no whole gradient, so that it too reduces for every micro-batch.
"""

from __future__ import annotations

from typing import NamedTuple

from torchledger.planner.fabric import Fabric
from torchledger.planner.shard import num_micro_batches
from torchledger.planner.stack import Stack
from torchledger.planner.stage import Block
from torchledger.spec import Recipe, Strategy

_GRADIENTS_SHARDED, _WEIGHTS_SHARDED = 2, 3


class DataRules(NamedTuple):
    """What the exchanges of a layout depend on beside sizes.

    Attributes:
        weight_bytes: bytes of an element of the weights that are gathered, but for embedding and head.
        gradient_bytes: bytes of an element of the gradients that are reduced.
        dense, expert: (ranks, distance) of the groups that share dense and expert weights; without level repeat them.
        replicas: (ranks, distance) of the groups that repeat a shard group's work (HSDP); one rank without. DualPipe
            has every part of the model on two ranks of its pipeline, which repeat each other too.
        level: ZeRO level.
        reshard: whether level 3 gathers again for the backward pass.
        each_layer: whether level 3 gathers and reduces layer by layer for every micro-batch; pipelines that keep
            gathered weights and whole gradients do it once a step.
        reduces_each: whether gradients are reduced for every micro-batch: with `each_layer`, and at level 2.
        added_bytes: bytes of an element of a micro-batch's gradient and of those that it is added to.
        end_bytes: bytes of an element of embedding and head where they are gathered in another format; 0: they are not.
        additions: of a step's micro-batches, those whose gradients are added to earlier ones by a kernel of its own.
    """

    weight_bytes: float
    gradient_bytes: float
    dense: tuple[int, int]
    expert: tuple[int, int]
    replicas: tuple[int, int]
    level: int
    reshard: bool
    each_layer: bool
    reduces_each: bool = False
    added_bytes: tuple[float, float] = (0.0, 0.0)
    additions: int = 0
    end_bytes: float = 0.0


def data_rules(recipe: Recipe, strategy: Strategy, stack: Stack, precision: str) -> DataRules:
    """The rules of a layout in a stack; `precision` is what the stack means by the recipe's."""
    wide = precision in {"fp32", "tf32", "bf16", "fp16"}
    computed = 4 if wide and not (stack.mixed_policy and strategy.shard_level == 3) else 2
    if recipe.precision in {"fp32", "tf32"}:
        computed = 4
    if strategy.shard_level == 3:
        gradient = stack.gathered_gradient_bytes or computed
    else:
        gradient = stack.gradient_bytes.get(precision, computed)
    sharers = strategy.num_sharers
    ranks = strategy.data_parallel * strategy.context_parallel
    within = sharers if strategy.shard_level else ranks
    taken = strategy.expert_parallel * (strategy.expert_tensor_parallel or strategy.tensor_parallel)
    once = strategy.pipeline_parallel > 1 and not (strategy.reshard and stack.reshard)
    each_layer = strategy.shard_level == _WEIGHTS_SHARDED and not once and sharers > 1
    reduces_each = each_layer or (strategy.shard_level == _GRADIENTS_SHARDED and sharers > 1)
    # what is reduced is there in that format; a buffer of another one takes every micro-batch, its own only later ones
    fresh = gradient if reduces_each else computed
    count = num_micro_batches(recipe, strategy)
    return DataRules(
        weight_bytes=stack.gathered_weight_bytes.get(precision, computed),
        gradient_bytes=gradient,
        dense=(within, strategy.tensor_parallel),
        expert=(max(1, within * strategy.tensor_parallel // taken), taken),
        replicas=(ranks // within * (2 if strategy.schedule == "dualpipe" else 1), strategy.tensor_parallel * within),
        level=strategy.shard_level,
        reshard=strategy.reshard and not once,
        each_layer=each_layer,
        reduces_each=reduces_each,
        added_bytes=(fresh, gradient),
        additions=0 if stack.fused_accumulation else count if fresh != gradient else count - 1,
        end_bytes=computed if precision in stack.gathered_weight_bytes else 0.0,
    )


def added_elements(block: Block, rules: DataRules) -> float:
    """Elements of a block's gradients that a rank adds to those of earlier micro-batches: what it keeps of them."""
    if not rules.reduces_each:
        return block.num_trainable + block.num_trainable_expert
    return block.num_trainable / rules.dense[0] + block.num_trainable_expert / rules.expert[0]


def updated_elements(dense: float, expert: float, rules: DataRules) -> float:
    """Of so many trained elements, those that a rank updates: its shard of them, all where nothing is sharded."""
    return dense / rules.dense[0] + expert / rules.expert[0] if rules.level else dense + expert


def gathered_bytes(block: Block, rules: DataRules) -> float:
    """Bytes of an element of a block's weights as they are gathered: no end is in the narrow format of layers."""
    return rules.end_bytes or rules.weight_bytes if block.kind in {"embedding", "head"} else rules.weight_bytes


def gather_s(block: Block, rules: DataRules, fabric: Fabric) -> float:
    """Seconds to gather a block's weights from their shards: all of them with level 3, below it those just updated."""
    whole = rules.level == _WEIGHTS_SHARDED
    dense = block.num_parameters if whole else block.num_trainable
    expert = block.num_expert_parameters if whole else block.num_trainable_expert
    return sum(
        fabric.seconds("all_gather", count * gathered_bytes(block, rules), *group)
        for count, group in ((dense, rules.dense), (expert, rules.expert))
        if count
    )


def reduce_s(block: Block, rules: DataRules, fabric: Fabric) -> float:
    """Seconds to reduce a block's gradients over the ranks that share it."""
    seconds = 0.0
    for count, group in ((block.num_trainable, rules.dense), (block.num_trainable_expert, rules.expert)):
        if not count:
            continue
        size = count * rules.gradient_bytes
        seconds += fabric.seconds("reduce_scatter" if rules.level else "all_reduce", size, *group)
        if rules.replicas[0] > 1:
            seconds += fabric.seconds("all_reduce", size / group[0] if rules.level else size, *rules.replicas)
    return seconds


def exposed(communication_s: float, computation_s: float, drag: float, *, overlaps: bool) -> float:
    """Seconds of a communication that show beside a computation that may hide it.

    Of two things that run together each slows the other a little: communication takes multiprocessors and bandwidth.

    >>> exposed(3.0, 2.0, 0.1, overlaps=True)  # 3 - 2 + 0.1·2
    1.2
    """
    if not overlaps:
        return communication_s
    return max(0.0, communication_s - computation_s) + drag * min(communication_s, computation_s)
