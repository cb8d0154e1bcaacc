"""Key-value heads over tensor parallel ranks: who holds which, and on how many ranks the same one is."""

from __future__ import annotations

from torchledger.spec import ModelSpec, Strategy

__all__ = ["cutters_of", "num_copies"]


def num_copies(spec: ModelSpec, strategy: Strategy) -> int:
    """Tensor parallel ranks that hold the same key-value head, next to each other; 1 where each has some of its own.

    Those that split the query heads of a group hold the head that they share (vLLM's `QKVParallelLinear`: tp / K
    replicas of each).

    >>> from torchledger.spec import AttentionSpec, MlpSpec
    >>> tiny = ModelSpec("tiny", 1024, 64, 2, 64, AttentionSpec(8, num_key_value_heads=2), MlpSpec(256))
    >>> [num_copies(tiny, Strategy(tensor_parallel=ranks)) for ranks in (1, 2, 4, 8)]
    [1, 1, 2, 4]
    """
    return max(1, strategy.tensor_parallel // spec.num_key_value_heads)


def cutters_of(name: str, spec: ModelSpec, strategy: Strategy) -> int:
    """Ranks among which tensor parallelism splits a parameter that it does split: all, or as many as there are heads.

    >>> from torchledger.spec import AttentionSpec, MlpSpec
    >>> tiny = ModelSpec("tiny", 1024, 64, 2, 64, AttentionSpec(8, num_key_value_heads=2), MlpSpec(256))
    >>> names = [f"layers.*.attention.{part}.weight" for part in ("query", "key", "key_norm", "value.lora_b")]
    >>> [cutters_of(name, tiny, Strategy(tensor_parallel=8)) for name in names]
    [8, 2, 2, 2]
    """
    return strategy.tensor_parallel // (num_copies(spec, strategy) if _makes_key_values(name) else 1)


def _makes_key_values(name: str) -> bool:
    """Whether a parameter has rows for each key-value head; none of latent attention's has such a name."""
    module = name.rpartition(".")[0].removesuffix(".lora_b")
    return module.rpartition(".")[2] in {"key", "value", "key_norm"}
