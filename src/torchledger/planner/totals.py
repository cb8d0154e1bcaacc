"""`StageTotals`: what of a stage its memory depends on, as a few numbers that a search adds up in microseconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from torchledger.planner.stage import Block, Stage


class StageTotals(NamedTuple):
    """Sums over a stage's blocks. Counts are elements, before anything is sharded over data parallel ranks.

    Attributes:
        num_parameters, num_expert_parameters: all but routed experts, and those.
        num_trainable, num_trainable_expert: those of them that have gradients and optimizer state.
        num_ends: of num_parameters, those of embedding and head.
        largest_layer, largest_layer_expert: parameters of the layer that has most.
        embedding, head: parameters of the embedding and of the head, 0 where the stage has none.
        largest_tensor: elements of the largest trainable tensor.
        activation_bytes: what all micro-batches in flight keep, but the head's of the last one.
        micro_batch_bytes: of that, what one micro-batch keeps in the first chunk.
        layer_kept_bytes: what the largest layer keeps of one micro-batch.
        layer_bytes: the most that a layer's backward pass holds beside: what is made again and temporaries.
        recomputed_bytes: of that, what is made again.
        head_bytes: what the head keeps and its temporaries, at the loss; 0 where the stage has no head.
        output_bytes: the residual stream of one micro-batch.
        largest_block: the largest tensor that is kept.
        num_neighbours: pipeline ranks that it sends to or receives from.
        root: of the ends, what level 3 gathers as one group for both passes, 0 where it does not.
        root_added: of that, what has its gradient added up from several places: (embedding, head).
    """

    num_parameters: int
    num_expert_parameters: int
    num_trainable: int
    num_trainable_expert: int
    num_ends: int
    largest_layer: int
    largest_layer_expert: int
    embedding: int
    head: int
    largest_tensor: int
    activation_bytes: float
    micro_batch_bytes: int
    layer_kept_bytes: int
    layer_bytes: int
    recomputed_bytes: int
    head_bytes: int
    output_bytes: int
    largest_block: int
    num_neighbours: int
    root: int = 0
    root_added: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, stage: Stage, num_stages: int = 1) -> StageTotals:
        """The totals of a stage of a pipeline of so many."""
        neighbours = 0 if num_stages == 1 else 1 if stage.index in {0, num_stages - 1} else 2
        return totals(stage.chunks, stage.in_flight, neighbours)


def totals(
    chunks: Iterable[tuple[tuple[Block, int], ...]], in_flight: Iterable[float], num_neighbours: int
) -> StageTotals:
    """The totals of chunks of blocks, each with how many there are, and of each chunk the micro-batches in flight."""
    sums, added = [0, 0, 0, 0], [0, 0]
    root = embedding = head = largest_tensor = output = head_bytes = largest_block = 0
    alive, layer = 0.0, (0, 0)
    kept = made = beside = micro_batch = 0
    for number, (chunk, flying) in enumerate(zip(chunks, in_flight, strict=True)):
        for block, count in chunk:
            sums[0] += block.num_parameters * count
            sums[1] += block.num_expert_parameters * count
            sums[2] += block.num_trainable * count
            sums[3] += block.num_trainable_expert * count
            largest_tensor = max(largest_tensor, block.largest_tensor)
            root += block.root_elements
            added[block.kind == "head"] += block.added_elements
            output = max(output, block.output_bytes)
            largest_block = max(largest_block, *(each.num_bytes for each in block.activations), 0)
            alive += block.kept_bytes * count * flying
            if not number and block.kind != "head":
                micro_batch += block.kept_bytes * count
            temporaries = max(block.forward_temporary_bytes, block.backward_temporary_bytes)
            if block.kind == "head":
                head, head_bytes = block.num_parameters, block.kept_bytes + temporaries
                alive -= block.kept_bytes
            elif block.kind == "embedding":
                embedding = block.num_parameters
            else:
                own = (block.num_parameters, block.num_expert_parameters)
                layer = max(layer, own, key=sum)
                kept = max(kept, block.kept_bytes)
                if block.recomputed_bytes + temporaries > beside:
                    made, beside = block.recomputed_bytes, block.recomputed_bytes + temporaries
    return StageTotals(
        num_parameters=sums[0],
        num_expert_parameters=sums[1],
        num_trainable=sums[2],
        num_trainable_expert=sums[3],
        num_ends=embedding + head,
        largest_layer=layer[0],
        largest_layer_expert=layer[1],
        embedding=embedding,
        head=head,
        largest_tensor=largest_tensor,
        activation_bytes=alive,
        micro_batch_bytes=micro_batch,
        layer_kept_bytes=kept,
        layer_bytes=beside,
        recomputed_bytes=made,
        head_bytes=head_bytes,
        output_bytes=output,
        largest_block=largest_block,
        num_neighbours=num_neighbours,
        root=root,
        root_added=(added[0], added[1]),
    )


__all__ = ["StageTotals", "totals"]
