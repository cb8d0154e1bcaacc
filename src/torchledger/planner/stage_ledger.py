"""`stage_ledger`: what one rank of a stage runs in a step, as lines of the books, collectives included."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from torchledger import ops
from torchledger.formula import Parameter
from torchledger.formula.optimizer import optimizer_lines
from torchledger.ledger import Ledger, Line, Work
from torchledger.ops import Piece
from torchledger.planner.data_parallel import DataRules, added_elements, gathered_bytes, updated_elements
from torchledger.planner.exchange import Exchange, group_of
from torchledger.planner.schedule import parts, runs_of_chunk
from torchledger.planner.stage import Block, Stage
from torchledger.planner.step import StepRules
from torchledger.spec import Recipe, Strategy


def stage_ledger(
    stage: Stage,
    exchanges: Mapping[Block, Sequence[Exchange]],
    strategy: Strategy,
    rules: StepRules,
    recipe: Recipe,
    *,
    element_bytes: int,
) -> Ledger:
    """The ledger of a rank.

    Args:
        stage: what it holds.
        exchanges: of each of its blocks, for one micro-batch.
        strategy: the layout.
        rules: number of micro-batches, groups and formats of data parallelism.
        recipe: the optimizer, and the precision as the stack means it.
        element_bytes: of the residual stream, which tensor and pipeline parallel ranks send.
    """
    runs = math.ceil(runs_of_chunk(strategy.schedule, strategy.pipeline_parallel, rules.num_micro_batches))
    ran = ((block, exchanges[block], count * runs) for block, count in stage.blocks)
    return Ledger.of(
        [
            *(line for each in ran for line in _computed(*each, strategy, element_bytes)),
            *_sent(stage, strategy, runs, rules.send_bytes, element_bytes),
            *_added(stage, rules, runs),
            *_tied(stage, strategy, rules),
            *_updated(stage, rules.data, runs, recipe),
            *_copied(stage, rules, runs),
        ]
    )


def exchange_line(exchange: Exchange, strategy: Strategy, element_bytes: int) -> Line:
    """An exchange as a line, its bytes those that one rank sends by the ring algorithm.

    >>> sums = Exchange("layers.*.mlp", "all_reduce", 1024, "forward", "tensor")
    >>> line = exchange_line(sums, Strategy(tensor_parallel=4), 2)
    >>> line.op, line.kind, line.work.bytes_sent  # 2·3/4·1024
    ('all_reduce', 'collective', 1536.0)
    """
    size, _ = group_of(exchange.cause, strategy)
    (piece,) = collective(exchange.op, exchange.num_bytes, size, element_bytes)
    return piece.line(exchange.module, phase="communication", times=exchange.times)


def collective(op: str, num_bytes: float, size: int, element_bytes: float) -> tuple[Piece, ...]:
    """The rule of `ops` for a collective over a whole tensor of so many bytes."""
    elements = num_bytes / element_bytes
    if op == "send":
        return ops.send(elements, element_bytes=element_bytes)
    if op == "all_to_all":
        return ops.all_to_all(size, elements, elements, elements / size, element_bytes=element_bytes)
    rule = {"all_reduce": ops.all_reduce, "all_gather": ops.all_gather, "reduce_scatter": ops.reduce_scatter}[op]
    return rule(size, elements / size, element_bytes=element_bytes)


def _computed(
    block: Block, exchanges: Sequence[Exchange], times: int, strategy: Strategy, element_bytes: int
) -> Iterator[Line]:
    """What a block runs and what its ranks send each other, so many times."""
    for line in block.lines:
        yield line.repeated(times)
    for exchange in exchanges:
        yield exchange_line(exchange, strategy, element_bytes).repeated(times)


def _sent(stage: Stage, strategy: Strategy, runs: int, num_bytes: float, element_bytes: int) -> Iterator[Line]:
    """Activations to the rank with the next part of the model, their gradients to the one with the part before."""
    held = parts(strategy.schedule, strategy.pipeline_parallel, strategy.virtual_stages)
    last = max(map(max, held))
    times = runs * sum((part < last) + (part > 0) for part in held[stage.index])
    if times:
        (piece,) = ops.send(num_bytes / element_bytes, element_bytes=element_bytes)
        yield piece.line("", phase="communication", times=times)


def _updated(stage: Stage, data: DataRules, runs: int, recipe: Recipe) -> Iterator[Line]:
    """Gradients reduced, weights gathered, the optimizer's step on what this rank updates."""
    for block, count in stage.blocks:
        yield from _reduced(block, count, runs, data)
    dense = sum(block.num_trainable * count for block, count in stage.blocks)
    expert = sum(block.num_trainable_expert * count for block, count in stage.blocks)
    mine = updated_elements(dense, expert, data)
    yield from optimizer_lines([Parameter("parameters", (1, math.ceil(mine)))], recipe.optimizer, recipe.precision)


def _added(stage: Stage, rules: StepRules, runs: int) -> Iterator[Line]:
    """A micro-batch's gradients added to those of earlier ones."""
    times = max(0, rules.data.additions - rules.num_micro_batches + runs) if rules.data.additions else 0
    fresh, kept = rules.data.added_bytes
    for block, count in stage.blocks:
        if times and (elements := added_elements(block, rules.data)):
            work = Work.of_flops(elements, bytes_read=(fresh + kept) * elements, bytes_written=kept * elements)
            yield Line(
                block.name,
                "gradient_accumulation",
                work,
                "pointwise",
                "backward",
                gradient_of="weight",
                shape=(("elements", elements),),
                times=count * times,
            )


def _copied(stage: Stage, rules: StepRules, runs: int) -> Iterator[Line]:
    """What goes to the host's memory and comes back: kept activations, gradients and new weights."""
    host = rules.host
    for block, count in stage.blocks:
        if host.kept_share and block.kind != "head":
            moved = host.kept_share * block.kept_bytes
            yield Line(block.name, "copy_to_host", Work(bytes_read=moved), "copy", "forward", times=count * runs)
            yield Line(block.name, "copy_from_host", Work(bytes_written=moved), "copy", "backward", times=count * runs)
    dense = sum(block.num_trainable * count for block, count in stage.blocks)
    expert = sum(block.num_trainable_expert * count for block, count in stage.blocks)
    if host.gradient_bytes and dense + expert:
        mine = updated_elements(dense, expert, rules.data)
        yield Line("", "copy_to_host", Work(bytes_read=host.gradient_bytes * mine), "copy", "optimizer")
        yield Line("", "copy_from_host", Work(bytes_written=host.weight_bytes * mine), "copy", "optimizer")


def _tied(stage: Stage, strategy: Strategy, rules: StepRules) -> Iterator[Line]:
    """Gradients of a tied table, which the first and the last stage both hold, added up between them."""
    if rules.tied_bytes and stage.index in {0, strategy.pipeline_parallel - 1}:
        (piece,) = collective("all_reduce", rules.tied_bytes, 2, rules.data.gradient_bytes)
        yield piece.line("embedding", phase="communication")


def _reduced(block: Block, count: int, runs: int, data: DataRules) -> Iterator[Line]:
    """Gradients summed over ranks, and weights gathered: all with level 3, below it those just updated."""
    times = count * runs if data.reduces_each else count
    module, whole, width = block.name, data.level == 3, gathered_bytes(block, data)
    gathers = 0 if not data.level else 2 if data.each_layer and data.reshard and block.gathers_again else 1
    for trainable, held, group in (
        (block.num_trainable, block.num_parameters if whole else block.num_trainable, data.dense),
        (block.num_trainable_expert, block.num_expert_parameters if whole else block.num_trainable_expert, data.expert),
    ):
        size, replicas = group[0], data.replicas[0]
        if trainable and size > 1:
            op = "reduce_scatter" if data.level else "all_reduce"
            (piece,) = collective(op, trainable * data.gradient_bytes, size, data.gradient_bytes)
            yield piece.line(module, phase="communication", times=times)
        if trainable and replicas > 1:
            shard = trainable * data.gradient_bytes / (size if data.level else 1)
            (piece,) = collective("all_reduce", shard, replicas, data.gradient_bytes)
            yield piece.line(module, phase="communication", times=times)
        if held and gathers and size > 1:
            (piece,) = collective("all_gather", held * width, size, width)
            yield piece.line(module, phase="communication", times=(times if data.each_layer else count) * gathers)


__all__ = ["collective", "exchange_line", "stage_ledger"]
