"""`Kernels`: which kernels run a model's operations, and what they keep. The same model costs otherwise on each.

A set says what is one kernel and what is several, and which tensors a kernel keeps for its gradient. FLOPs of matmuls
are the same on all; bytes moved and bytes kept are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torchledger.spec import SpecError

Attention = Literal["eager", "scores", "flash"]
Chains = Literal["eager", "fused", "compiled"]
Loss = Literal["eager", "vocabulary parallel", "compiled"]
Selective = Literal["core", "operations"]
Casts = Literal["at once", "eager"]


@dataclass(frozen=True, slots=True)
class Kernels:
    """One set of kernels.

    Attributes:
        name: what it is called.
        device: whose kernels run what is not fused: autocast's lists, RMSNorm, dropout, torch's own attention.
        attention: `eager` is what torch's scaled-dot-product attention chooses on the device; `scores` a batch of
            matmuls, one kernel for scale, mask and softmax that keeps its result, a batched matmul (Megatron-LM
            megatron/model/fused_softmax.py); `flash` FlashAttention-2 (arXiv:2307.08691), which shares key-value heads
            and knows causality, windows, soft-caps and ALiBi without a mask tensor.
        chains: `eager` runs pointwise operations one by one; `fused` has Megatron's kernels for bias and activation,
            gated activation, bias with dropout and residual, and rotation; `compiled` lets a compiler fuse every chain
            and make cheap values again in the backward pass instead of keeping them.
        joint: queries, keys and values are one matmul, and so are gate and up.
        loss: `eager` keeps FP32 log-probabilities; `vocabulary parallel` is Megatron's, which writes the softmax over
            FP32 logits and the gradient over the softmax; `compiled` keeps logits in their own format.
        selective: what recompute `selective` runs again: the `core` of attention (arXiv:2205.05198, section 5), or of a
            whole layer all `operations` but every other matmul and fused attention, whose results are kept (torchtitan
            torchtitan/distributed/activation_checkpoint.py).
        keeps_narrow: linear layers in FP8 and narrower keep the cast operand instead of the one that was cast
            (TransformerEngine), not the other way round (torchao).
        casts: how an operand becomes FP8: `at once` in one kernel, with a scale that is known or is a block's; `eager`
            by single operations, with a scale from a first pass for the largest magnitude (the trainer's `fp8`).
        source: where its rules come from.
    """

    name: str
    device: Literal["cpu", "cuda"] = "cuda"
    attention: Attention = "flash"
    chains: Chains = "eager"
    joint: bool = False
    loss: Loss = "eager"
    selective: Selective = "core"
    keeps_narrow: bool = False
    casts: Casts = "at once"
    source: str = ""


_SETS = (
    Kernels(
        "cpu",
        "cpu",
        "eager",
        casts="eager",
        source="PyTorch 2.13 on the CPU, which the traces of tests/agree hold it to",
    ),
    Kernels(
        "cuda",
        "cuda",
        "eager",
        casts="eager",
        source="PyTorch 2.13 eager on CUDA, which the traces of tests/agree hold it to",
    ),
    Kernels(
        "flash",
        source="PyTorch eager with flash-attn: github.com/mosaicml/llm-foundry llmfoundry/models/layers/attention.py, "
        "github.com/pytorch/torchtitan torchtitan/models/llama3",
    ),
    Kernels(
        "compiled",
        chains="compiled",
        loss="compiled",
        source="torch.compile of every layer, its kept set approximated: functorch's min-cut partitioner "
        "(torch/_functorch/partitioners.py) makes pointwise results again and keeps what matmuls and reductions made",
    ),
    Kernels(
        "megatron",
        attention="scores",
        chains="fused",
        joint=True,
        loss="vocabulary parallel",
        keeps_narrow=True,
        source="Megatron-LM of 2021 to 2023: arXiv:2205.05198 section 4, github.com/NVIDIA/Megatron-LM megatron/model",
    ),
    Kernels(
        "megatron-flash",
        chains="fused",
        joint=True,
        loss="vocabulary parallel",
        keeps_narrow=True,
        source="Megatron-Core with TransformerEngine: github.com/NVIDIA/Megatron-LM megatron/core/fusions, "
        "github.com/NVIDIA/TransformerEngine transformer_engine/pytorch/module",
    ),
)

#: Name -> set. `transformer-engine` is another name of `megatron-flash`.
KERNELS: Mapping[str, Kernels] = {each.name: each for each in _SETS} | {"transformer-engine": _SETS[-1]}


def kernels_of(kernels: Kernels | str) -> Kernels:
    """The set of that name; a set is itself.

    Raises:
        SpecError: there is none of that name; the message lists them.

    >>> kernels_of("megatron").attention
    'scores'
    """
    if isinstance(kernels, Kernels):
        return kernels
    if kernels not in KERNELS:
        raise SpecError(f"kernels {kernels!r} are not known; known are {', '.join(KERNELS)}")
    return KERNELS[kernels]
