"""`Block` and `Stage`: the share of a model that one rank runs, in parts that the planner adds up.

A block is one part of the model (the embedding, one layer of a kind, the head with the loss) as one rank runs it on one
micro-batch. A stage is what one pipeline rank holds: blocks and how many of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torchledger.formula import Activation
from torchledger.ledger import Line

BlockKind = Literal["embedding", "layer", "prediction", "head"]


@dataclass(frozen=True, slots=True)
class Block:
    """One part of the model on one rank, for one micro-batch.

    Attributes:
        name: unique in a model (`embedding`, `layer`, `layer window 4096`, `mixture layer`, `head` ...).
        kind: what it is.
        lines: forward, recompute and backward lines, `times` for one micro-batch and one such layer.
        num_parameters: elements of its parameters on this rank, routed experts not counted.
        num_expert_parameters: elements of its routed experts on this rank; they are sharded and reduced over fewer
            ranks (data · context / expert parallel).
        num_trainable, num_trainable_expert: those of them that have gradients and optimizer state.
        num_tensors: parameter tensors.
        largest_tensor: elements of the largest of them.
        activations: what is kept for the backward pass of one micro-batch, bytes on this rank (with recompute: what
            stays after it).
        kept_bytes: their sum.
        recomputed_bytes: what recompute makes again while this block's backward pass runs; 0 without.
        forward_temporary_bytes: the most that its forward pass holds beside what it keeps.
        backward_temporary_bytes: the most that its backward pass holds beside what is kept and made again.
        output_bytes: its result, the residual stream [micro-batch, tokens of the rank, hidden].
        root_elements: of its parameters, those that level 3 gathers for the whole forward and backward pass, in one
            group with the other end of the model; 0 of what is gathered by itself.
        added_elements: of those, the ones whose gradient is added up from several places of the model.
        gathers_again: whether level 3 gathers it a second time: not where a backward pass never comes by.
    """

    name: str
    kind: BlockKind
    lines: tuple[Line, ...]
    num_parameters: int
    num_expert_parameters: int
    num_trainable: int
    num_trainable_expert: int
    num_tensors: int
    largest_tensor: int
    activations: tuple[Activation, ...]
    kept_bytes: int
    recomputed_bytes: int
    forward_temporary_bytes: int
    backward_temporary_bytes: int
    output_bytes: int
    root_elements: int = 0
    added_elements: int = 0
    gathers_again: bool = True


@dataclass(frozen=True, slots=True)
class Stage:
    """What one pipeline rank holds.

    Attributes:
        index: pipeline rank, 0 has the embedding (if it is not placed elsewhere).
        chunks: per virtual stage, its blocks in order with how many of each.
        in_flight: per chunk, micro-batches whose activations are alive at once at the worst moment of the schedule.
    """

    index: int
    chunks: tuple[tuple[tuple[Block, int], ...], ...]
    in_flight: tuple[float, ...]

    @property
    def blocks(self) -> tuple[tuple[Block, int], ...]:
        """All blocks with how many of each, over all chunks."""
        return tuple(pair for chunk in self.chunks for pair in chunk)

    @property
    def num_parameters(self) -> int:
        """Elements of all parameters on this rank before anything is sharded over data parallel ranks."""
        return sum((block.num_parameters + block.num_expert_parameters) * n for block, n in self.blocks)
