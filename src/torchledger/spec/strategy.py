"""`Strategy`: how the work is spread over ranks. One rank is all ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Schedule = Literal["gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipe"]
ContextKind = Literal["ring", "all-gather", "ulysses"]


@dataclass(frozen=True, slots=True)
class Strategy:
    """How the work is spread.

    Ranks are numbered with tensor parallel innermost, then context, then data (expert parallel ranks are consecutive
    ones of data · context, and of tensor too where that splits no expert), and pipeline outermost: the order of
    Megatron-LM and torchtitan.

    Attributes:
        stack: the training stack whose rules hold (`torchledger`, `megatron`, `fsdp2` ...; `planner.stacks()`).
        data_parallel: replicas of the model, all shard groups and replicate groups together.
        shard_level: ZeRO level (arXiv:1910.02054): 0 nothing, 1 optimizer state, 2 gradients too, 3 parameters too.
        shard_group: data parallel ranks that share one copy of what is sharded (HSDP); 0 is all of them.
        reshard: with level 3, gathered weights are given back after the forward pass and gathered again for the
            backward pass (FULL_SHARD); otherwise kept until then (SHARD_GRAD_OP).
        prefetch: with level 3, layers whose weights are gathered ahead of their use.
        tensor_parallel: ranks that split every layer's matrices (arXiv:1909.08053).
        sequence_parallel: norms, dropout and residuals split their tokens over the tensor parallel ranks
            (arXiv:2205.05198, section 4.2.2).
        vocab_parallel: embedding, head and loss are split over the tensor parallel ranks.
        pipeline_parallel: stages of layers.
        schedule: order of the micro-batches: `gpipe` (arXiv:1811.06965), `1f1b` and `interleaved` (arXiv:2104.04473),
            `zero-bubble` (ZB-H1, arXiv:2401.10241), `dualpipe` (arXiv:2412.19437).
        virtual_stages: chunks of layers of one rank (`interleaved`).
        stage_layers: layers of each chunk in the order of the model; empty spreads them evenly.
        context_parallel: ranks that split the tokens of a sequence.
        context_kind: how keys and values reach all queries: passed round a `ring` (arXiv:2310.01889), `all-gather`
            (Llama 3, arXiv:2407.21783, 3.3.2), or heads against tokens exchanged, `ulysses` (arXiv:2309.14509).
        expert_parallel: ranks that share the experts, taken out of data · context parallel ones; with
            expert_tensor_parallel 1 out of data · context · tensor ones.
        expert_tensor_parallel: ranks that split each expert's matrices; 0 is tensor_parallel.
        micro_batch_size: sequences that a replica runs at once; 0 is all of its share of an accumulation step.
        overlap_data: gradient reduction and weight gathering run while the backward and forward pass compute.
        overlap_tensor: tensor parallel collectives are cut up and run beside their matmuls.
    """

    stack: str = "torchledger"
    data_parallel: int = 1
    shard_level: int = 0
    shard_group: int = 0
    reshard: bool = True
    prefetch: int = 1
    tensor_parallel: int = 1
    sequence_parallel: bool = False
    vocab_parallel: bool = True
    pipeline_parallel: int = 1
    schedule: Schedule = "1f1b"
    virtual_stages: int = 1
    stage_layers: tuple[int, ...] = ()
    context_parallel: int = 1
    context_kind: ContextKind = "ring"
    expert_parallel: int = 1
    expert_tensor_parallel: int = 0
    micro_batch_size: int = 0
    overlap_data: bool = True
    overlap_tensor: bool = False

    @property
    def num_ranks(self) -> int:
        """Ranks that run it. Expert parallel ranks are taken out of the data parallel ones and add none."""
        return self.data_parallel * self.tensor_parallel * self.pipeline_parallel * self.context_parallel

    @property
    def num_sharers(self) -> int:
        """Ranks that share one copy of what `shard_level` shards: data parallel and context parallel ones."""
        return (self.shard_group or self.data_parallel) * self.context_parallel
