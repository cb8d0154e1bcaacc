"""`Strategy`: how the work is spread over ranks. One rank is all ones."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Strategy:
    """How the work is spread.

    Attributes:
        stack: the training stack whose rules hold (`torchledger`, `megatron`, `fsdp2` ...).
        data_parallel: replicas of the model.
        shard_level: ZeRO level (arXiv:1910.02054): 0 nothing, 1 optimizer state, 2 gradients too, 3 parameters too.
        tensor_parallel, pipeline_parallel, context_parallel, expert_parallel: sizes of these groups.
    """

    stack: str = "torchledger"
    data_parallel: int = 1
    shard_level: int = 0
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    context_parallel: int = 1
    expert_parallel: int = 1

    @property
    def num_ranks(self) -> int:
        """Ranks that run it. Expert parallel ranks are taken out of the data parallel ones and add none."""
        return self.data_parallel * self.tensor_parallel * self.pipeline_parallel * self.context_parallel
