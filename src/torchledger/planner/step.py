"""`step_cost`: from seconds of blocks to seconds of a step: micro-batches, pipeline, data parallelism, optimizer.

Everything here is arithmetic on a few numbers for each distinct block, so that a search can do it for any number of
layouts, and the plan does exactly the same and says what each second was for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from torchledger.planner.constants import Constants
from torchledger.planner.data_parallel import DataRules, added_elements, exposed, gather_s, reduce_s, updated_elements
from torchledger.planner.fabric import Fabric
from torchledger.planner.host import HostRules
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
        host_s: seconds of gradients to the host and of new weights from it, on the stage that has most.
    """

    step_s: float
    pipeline: PipelineTime
    chunks: tuple[tuple[ChunkCost, ...], ...]
    send_s: float
    gather_s: tuple[float, ...]
    reduce_s: tuple[float, ...]
    optimizer_s: float
    straggler_s: float
    host_s: tuple[float, float] = (0.0, 0.0)


class Beside(NamedTuple):
    """Seconds that show beside one block's passes.

    Attributes:
        gather_s: of weights, beside the forward pass.
        reduce_s: of weights gathered again and gradients reduced, beside the backward pass.
        out_s, back_s: of kept activations on their way to the host and back.
    """

    gather_s: float
    reduce_s: float
    out_s: float
    back_s: float


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
        host: seconds of what is offloaded.
    """

    num_micro_batches: int
    send_bytes: float
    optimizer_s_per_parameter: float
    data: DataRules
    doublings: float
    added_s_per_element: float = 0.0
    tied_bytes: float = 0.0
    host: HostRules = HostRules()


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
    updated = max(_parameters(stage, rules.data) for stage in costed.values())
    optimizer = updated * rules.optimizer_s_per_parameter
    moved = updated * rules.host.gradient_s, updated * rules.host.weight_s
    running = pipeline.total_s + max(g + r for g, r in ends) + optimizer + sum(moved)
    straggler = running * (constants.overhead * (1 + constants.straggler * rules.doublings) - 1)
    return StepCost(
        running + straggler + constants.step_s, pipeline, chunks, send_s, gather, reduce, optimizer, straggler, moved
    )


def _chunk_cost(chunk: Chunk, strategy: Strategy, rules: StepRules, fabric: Fabric, constants: Constants) -> ChunkCost:
    forward = backward = weight = 0.0
    data = rules.data
    for block, cost, count in chunk:
        shown = beside_s(block, cost, strategy, rules, fabric=fabric, constants=constants)
        f = cost.forward.seconds + shown.gather_s + shown.out_s
        b = cost.recompute.seconds + cost.backward.seconds + shown.reduce_s + shown.back_s
        w = cost.weight.seconds + added_elements(block, data) * rules.added_s_per_element
        forward += f * count
        backward += b * count
        weight += w * count
    return ChunkCost(forward, backward, weight)


def beside_s(
    block: Block, cost: PieceCost, strategy: Strategy, rules: StepRules, *, fabric: Fabric, constants: Constants
) -> Beside:
    """What shows of a block's exchanges and copies beside its passes for one micro-batch.

    Copies to and from the host run beside the computing and beside what shows of the exchanges. What the head keeps is
    needed at once and stays.
    """
    data, drag = rules.data, constants.drag
    f = cost.forward.seconds
    b = cost.recompute.seconds + cost.backward.seconds + cost.weight.seconds
    gather = reduce = 0.0
    if data.reduces_each:
        whole = gather_s(block, data, fabric) if data.each_layer else 0.0
        # the root's group is gathered before all else and reduced after it, beside nothing
        overlaps = strategy.overlap_data and not (data.each_layer and block.root_elements)
        gather = exposed(whole, f, drag, overlaps=overlaps)
        both = (whole if data.reshard else 0.0) + reduce_s(block, data, fabric)
        reduce = exposed(both, b, drag, overlaps=overlaps)
    away = rules.host.kept_s * block.kept_bytes
    if not away or block.kind == "head":
        return Beside(gather, reduce, 0.0, 0.0)
    out = exposed(away, f + gather, drag, overlaps=True)
    return Beside(gather, reduce, out, exposed(away, b + reduce, drag, overlaps=True))


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
    # the first gathering and the last reduction have nothing beside them; the root's never have, and are told there
    first = next((block for block, _ in blocks if not (rules.each_layer and block.root_elements)), blocks[0][0])
    if rules.each_layer:
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
    return updated_elements(dense, expert, rules)
