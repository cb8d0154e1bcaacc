"""What the optimizer's phase runs, and the bytes of its state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchledger import ops
from torchledger.formula.parameters import Parameter
from torchledger.ledger import Amount, Line
from torchledger.spec import OptimizerSpec


def trained(parameters: Sequence[Parameter]) -> tuple[Parameter, ...]:
    """Those that the optimizer moves, each once: no buffers, a tied head at its embedding only."""
    return tuple(each for each in parameters if each.trainable and each.tied_to is None and not each.frozen)


def is_decayed(parameter: Parameter) -> bool:
    """Whether weight decay acts on it: on matrices, not on norms, biases or embeddings of positions."""
    return len(parameter.shape) >= 2 and not parameter.name.startswith("position_embedding")


def optimizer_lines(parameters: Sequence[Parameter], spec: OptimizerSpec) -> Iterator[Line]:
    """Clipping, then the step on the parameters that decay and on those that do not.

    >>> lines = list(optimizer_lines([Parameter("head.weight", (4, 8))], OptimizerSpec()))
    >>> [(line.op, line.work.flops_full) for line in lines]  # 3·32 - 1 + 1 + 2 - 1; 11·32
    [('clip_grad_norm', 98), ('adamw', 352)]
    """
    moved = trained(parameters)
    elements, tensors = sum(each.total for each in moved), sum(each.times for each in moved)
    if spec.gradient_clip > 0:
        for piece in ops.clip_grad_norm(elements, tensors):
            yield piece.line("", phase="optimizer")
    for decays in (True, False):
        group: Amount = sum(each.total for each in moved if is_decayed(each) == decays)
        if group == 0:
            continue
        decayed = decays and spec.weight_decay > 0
        if spec.kind == "adamw":
            pieces = ops.adamw(group, weight_decay=decayed, implementation=spec.implementation)
        else:
            pieces = ops.sgd(
                group, momentum=spec.momentum > 0, weight_decay=decayed, implementation=spec.implementation
            )
        for piece in pieces:
            yield piece.line("", phase="optimizer")


def state_bytes(parameters: Sequence[Parameter], spec: OptimizerSpec) -> Amount:
    """Bytes that stay between steps: AdamW's two moments in FP32 and a step count (4 bytes) a tensor; SGD's buffer.

    >>> state_bytes([Parameter("head.weight", (4, 8))], OptimizerSpec())  # 2·4·32 + 4
    260
    """
    moved = trained(parameters)
    elements = sum(each.total for each in moved)
    if spec.kind == "sgd":
        return 4 * elements if spec.momentum > 0 else 0
    return 8 * elements + 4 * sum(each.times for each in moved)
