"""`step_cost`: from seconds of blocks to seconds of a step: micro-batches, pipeline, data parallelism, optimizer.

Everything here is arithmetic on a few numbers for each distinct block, so that a search can do it for any number of
layouts, and the plan does exactly the same and says what each second was for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from torchledger.planner.constants import Constants
from torchledger.planner.data_parallel import DataRules, added_elements, exposed, gather_s, reduce_s
from torchledger.planner.fabric import Fabric
from torchledger.planner.piece_cost import PieceCost
from torchledger.planner.schedule import pipeline_time
from torchledger.planner.schedule_cost import ChunkCost, PipelineTime
from torchledger.planner.stage import Block
from torchledger.spec import Strategy

#: Layouts that differ in what the ends of a step exchange have the same pipeline.
_pipeline_time = lru_cache(maxsize=64)(pipeline_time)

#: Blocks of a chunk and how many of each, with what each costs.
Chunk = Sequence[tuple[Block, PieceCost, int]]


class StepCost(NamedTuple):
    """Seconds of a step.

    Attributes:
        step_s: all of it.
        pipeline: the micro-batches on the slowest path, bubble and sends included.
        chunks: [stage][chunk] seconds of a micro-batch.
        send_s: seconds that a stage takes to hand on a micro-batch.
        gather_s: by stage, seconds of weight gathering that show.
        reduce_s: by stage, seconds of gradient reduction that show.
        optimizer_s: seconds of the optimizer on the stage that has most to do.
        straggler_s: seconds that the slowest rank of many adds.
    """

    step_s: float
    pipeline: PipelineTime
    chunks: tuple[tuple[ChunkCost, ...], ...]
    send_s: float
    gather_s: tuple[float, ...]
    reduce_s: tuple[float, ...]
    optimizer_s: float
    straggler_s: float


class StepRules(NamedTuple):
    """What a step's seconds depend on beside its blocks.

    Attributes:
        num_micro_batches: of one replica.
        send_bytes: what a stage hands to the next for one micro-batch.
        optimizer_s_per_parameter: seconds that the update of one parameter takes.
        data: rules of data parallelism.
        doublings: how often the number of islands doubles from one.
        added_s_per_element: seconds for an element of a micro-batch's gradients to be added to those before, on average
            over the micro-batches.
        tied_bytes: gradients of the token table that the first and the last stage both hold; 0 where none is tied.
    """

    num_micro_batches: int
    send_bytes: float
    optimizer_s_per_parameter: float
    data: DataRules
    doublings: float
    added_s_per_element: float = 0.0
    tied_bytes: float = 0.0


def step_cost(
    stages: Sequence[Sequence[Chunk]], strategy: Strategy, rules: StepRules, fabric: Fabric, constants: Constants
) -> StepCost:
    """Seconds of a step of stages [stage][chunk]."""
    # equal stages are one object: each is costed once
    costed = {id(stage): stage for stage in stages}
    chunk_costs = {
        key: tuple(_chunk_cost(chunk, strategy, rules, fabric, constants) for chunk in stage)
        for key, stage in costed.items()
    }
    ends_of = {
        key: _ends(stage, chunk_costs[key], strategy, rules.data, fabric=fabric, constants=constants)
        for key, stage in costed.items()
    }
    chunks = tuple([chunk_costs[id(stage)] for stage in stages])
    ranks = strategy.pipeline_parallel
    distance = strategy.data_parallel * strategy.tensor_parallel * strategy.context_parallel
    send_s = fabric.seconds("send", rules.send_bytes, ranks, distance) if ranks > 1 else 0.0
    pipeline = _pipeline_time(strategy.schedule, chunks, rules.num_micro_batches, send_s)
    ends = [ends_of[id(stage)] for stage in stages]
    if rules.tied_bytes:
        # once the replicas' are added up (Megatron-LM, finalize_model_grads.py); groups of two that fill a cluster are
        # half of it apart, on one island or on two as the first stage and the last are
        tied_s = fabric.seconds("all_reduce", rules.tied_bytes, 2, ranks * distance // 2)
        ends[0], ends[-1] = (ends[0][0], ends[0][1] + tied_s), (ends[-1][0], ends[-1][1] + tied_s)
    gather, reduce = tuple(each[0] for each in ends), tuple(each[1] for each in ends)
    optimizer = max(_parameters(stage, rules.data) for stage in costed.values()) * rules.optimizer_s_per_parameter
    running = pipeline.total_s + max(g + r for g, r in ends) + optimizer
    straggler = running * (constants.overhead * (1 + constants.straggler * rules.doublings) - 1)
    return StepCost(
        running + straggler + constants.step_s, pipeline, chunks, send_s, gather, reduce, optimizer, straggler
    )


def _chunk_cost(chunk: Chunk, strategy: Strategy, rules: StepRules, fabric: Fabric, constants: Constants) -> ChunkCost:
    forward = backward = weight = 0.0
    data = rules.data
    for block, cost, count in chunk:
        f = cost.forward.seconds
        b = cost.recompute.seconds + cost.backward.seconds
        w = cost.weight.seconds
        if data.reduces_each:
            gather = gather_s(block, data, fabric) if data.each_layer else 0.0
            f += exposed(gather, f, constants.drag, overlaps=strategy.overlap_data)
            again = gather if data.reshard else 0.0
            beside = again + reduce_s(block, data, fabric)
            b += exposed(beside, b + w, constants.drag, overlaps=strategy.overlap_data)
        w += added_elements(block, data) * rules.added_s_per_element
        forward += f * count
        backward += b * count
        weight += w * count
    return ChunkCost(forward, backward, weight)


def _ends(
    stage: Sequence[Chunk],
    costs: Sequence[ChunkCost],
    strategy: Strategy,
    rules: DataRules,
    *,
    fabric: Fabric,
    constants: Constants,
) -> tuple[float, float]:
    """Seconds of gathering and of reduction that show at the ends of a step; level 3 has them in every layer."""
    if rules.dense[0] * rules.replicas[0] * rules.expert[0] == 1:
        return 0.0, 0.0
    blocks = [(block, count) for chunk in stage for block, _, count in chunk]
    first = blocks[0][0]
    if rules.each_layer:  # the first gathering and the last reduction have nothing beside them
        return gather_s(first, rules, fabric), reduce_s(first, rules, fabric)
    gather = sum(gather_s(block, rules, fabric) * count for block, count in blocks) if rules.level else 0.0
    # of one micro-batch; with virtual stages a chunk's last micro-batches run while another's gradients are reduced
    turns = strategy.pipeline_parallel if len(costs) > 1 else 1
    forward = turns * sum(each.forward_s for each in costs)
    backward = turns * sum(each.backward_s + each.weight_s for each in costs)
    overlaps = strategy.overlap_data
    shown = exposed(gather, forward, constants.drag, overlaps=overlaps)
    if rules.reduces_each:
        return shown, reduce_s(first, rules, fabric)
    reduce = sum(reduce_s(block, rules, fabric) * count for block, count in blocks)
    return shown, exposed(reduce, backward, constants.drag, overlaps=overlaps)


def _parameters(stage: Sequence[Chunk], rules: DataRules) -> float:
    """Parameters that a rank of the stage updates."""
    dense = sum(block.num_trainable * count for chunk in stage for block, _, count in chunk)
    expert = sum(block.num_trainable_expert * count for chunk in stage for block, _, count in chunk)
    if not rules.level:
        return dense + expert
    return dense / rules.dense[0] + expert / rules.expert[0]
