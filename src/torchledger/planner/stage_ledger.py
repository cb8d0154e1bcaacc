"""`stage_ledger`: what one rank of a stage runs in a step, as lines of the books, collectives included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchledger import ops
from torchledger.formula import Parameter
from torchledger.formula.optimizer import optimizer_lines
from torchledger.ledger import Ledger, Line
from torchledger.ops import Piece as Operation
from torchledger.planner.block import Piece
from torchledger.planner.data_parallel import DataRules
from torchledger.planner.exchange import Exchange, group_of
from torchledger.planner.stage import Block
from torchledger.planner.step import StepRules
from torchledger.spec import OptimizerSpec, Strategy


def stage_ledger(
    stage: Sequence[Sequence[tuple[Piece, int]]],
    strategy: Strategy,
    rules: StepRules,
    optimizer: OptimizerSpec,
    *,
    element_bytes: int,
    assumptions: Sequence[str] = (),
) -> Ledger:
    """The ledger of a rank.

    Args:
        stage: per chunk, its blocks with their exchanges and how many of each.
        strategy: the layout.
        rules: number of micro-batches, groups and formats of data parallelism.
        optimizer: which one updates.
        element_bytes: of what tensor and pipeline parallel ranks send.
        assumptions: carried into the ledger.
    """
    lines = [*_computed(stage, strategy, rules, element_bytes), *_updated(stage, strategy, rules, optimizer)]
    return Ledger.of(lines, assumptions=list(assumptions))


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


def collective(op: str, num_bytes: float, size: int, element_bytes: float) -> tuple[Operation, ...]:
    """The rule of `ops` for a collective over a whole tensor of so many bytes."""
    elements = num_bytes / element_bytes
    if op == "send":
        return ops.send(elements, element_bytes=element_bytes)
    if op == "all_to_all":
        return ops.all_to_all(size, elements, elements, elements / size, element_bytes=element_bytes)
    rule = {"all_reduce": ops.all_reduce, "all_gather": ops.all_gather, "reduce_scatter": ops.reduce_scatter}[op]
    return rule(size, elements / size, element_bytes=element_bytes)


def _computed(
    stage: Sequence[Sequence[tuple[Piece, int]]], strategy: Strategy, rules: StepRules, element_bytes: int
) -> Iterator[Line]:
    for index, chunk in enumerate(stage):
        for piece, count in chunk:
            times = count * rules.num_micro_batches
            for line in piece.block.lines:
                yield line.repeated(times)
            for exchange in piece.exchanges:
                yield exchange_line(exchange, strategy, element_bytes).repeated(times)
        if strategy.pipeline_parallel > 1:
            (sent,) = ops.send(rules.send_bytes / element_bytes, element_bytes=element_bytes)
            # the activations on, their gradients back
            yield sent.line("", phase="communication", times=2 * rules.num_micro_batches)
        del index


def _updated(
    stage: Sequence[Sequence[tuple[Piece, int]]], strategy: Strategy, rules: StepRules, optimizer: OptimizerSpec
) -> Iterator[Line]:
    """Gradients reduced, weights gathered, the optimizer's step on what this rank updates."""
    data = rules.data
    blocks = [(piece.block, count) for chunk in stage for piece, count in chunk]
    for block, count in blocks:
        yield from _reduced(block, count, data, rules.num_micro_batches)
    dense = sum(block.num_trainable * count for block, count in blocks)
    expert = sum(block.num_trainable_expert * count for block, count in blocks)
    mine = dense / data.dense[0] + expert / data.expert[0] if data.level else dense + expert
    yield from optimizer_lines([Parameter("parameters", (1, -(-mine // 1)))], optimizer)
    del strategy


def _reduced(block: Block, count: int, data: DataRules, num_micro_batches: int) -> Iterator[Line]:
    module = block.name
    for trainable, held, (size, _) in (
        (block.num_trainable, block.num_parameters, data.dense),
        (block.num_trainable_expert, block.num_expert_parameters, data.expert),
    ):
        if size == 1 or not held:
            continue
        times = count * (num_micro_batches if data.each_layer else 1)
        gathers = 0 if not data.level else (2 if data.each_layer and data.reshard else 1)
        if trainable:
            op = "reduce_scatter" if data.level else "all_reduce"
            (piece,) = collective(op, trainable * data.gradient_bytes, size, data.gradient_bytes)
            yield piece.line(module, phase="communication", times=times)
        if gathers:
            (piece,) = collective("all_gather", held * data.weight_bytes, size, data.weight_bytes)
            yield piece.line(module, phase="communication", times=times * gathers)
        if data.level and data.replicas[0] > 1 and trainable and size == data.dense[0]:
            (piece,) = collective(
                "all_reduce", trainable * data.gradient_bytes / size, data.replicas[0], data.gradient_bytes
            )
            yield piece.line(module, phase="communication", times=times)


__all__ = ["collective", "exchange_line", "stage_ledger"]
