"""`Recipe`: how a model is trained: precision, optimizer, recompute, batch, tokens, seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from torchledger.spec.model import ModelSpec
from torchledger.units import Count

_LONGEST_DEFAULT = 8192

OptimizerKind = Literal["adamw", "sgd", "adafactor", "lion", "muon", "adamw-8bit"]
Precision = Literal[
    "fp32", "tf32", "bf16", "fp16", "bf16-master", "fp16-master", "bf16-moments", "bf16-pure", "fp8", "mxfp8", "nvfp4"
]
Recompute = Literal["none", "selective", "full"]


@dataclass(frozen=True, slots=True)
class OptimizerSpec:
    """The optimizer and its schedule.

    Attributes:
        kind: `adamw` (Loshchilov and Hutter, arXiv:1711.05101), `sgd` with momentum, `adafactor` (arXiv:1804.04235),
            `lion` (arXiv:2302.06675), `muon` on matrices with AdamW on the rest (Moonlight, arXiv:2502.16982), or
            `adamw-8bit` (block-wise 8-bit moments, arXiv:2110.02861).
        implementation: `fused` one kernel, `foreach` lists of tensors, `loop` one parameter at a time: same result
            up to rounding, different peak memory.
        learning_rate: at the top of the schedule.
        beta1, beta2, epsilon, weight_decay: AdamW's. Weight decay acts on matrices, not on biases, norms or embeddings
            of positions.
        momentum: SGD's; Muon's, where 0 is the 0.95 of its authors. The others have none.
        gradient_clip: largest global gradient norm; 0 does not clip.
        schedule: after the warm-up `cosine`, `linear` (a straight line to the last rate), `wsd` (stays at the top, then
            a straight line over the last `decay_fraction` of the steps; MiniCPM, arXiv:2404.06395, section 4), or
            `constant`.
        warmup_steps: steps of linear warm-up.
        final_fraction: last learning rate over the largest.
        decay_fraction: with `wsd`, share of all steps that decay.
    """

    kind: OptimizerKind = "adamw"
    implementation: Literal["fused", "foreach", "loop"] = "fused"
    learning_rate: float = 3e-4
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    weight_decay: float = 0.1
    momentum: float = 0.0
    gradient_clip: float = 1.0
    schedule: Literal["cosine", "linear", "wsd", "constant"] = "cosine"
    warmup_steps: int = 0
    final_fraction: float = 0.1
    decay_fraction: float = 0.2


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a model is trained.

    Attributes:
        batch_size: sequences B in one optimizer step, all micro-batches together.
        sequence_length: tokens T in a sequence.
        precision: `fp32`; `tf32`: the same with matmuls in TF32; `bf16`, `fp16`: parameters, gradients and optimizer
            state in FP32, matmuls in BF16 or FP16 under autocast; `bf16-master`, `fp16-master`: weights and activations
            in it, an FP32 master copy and FP32 moments beside; `bf16-moments`: no master copy; `bf16-pure`: moments in
            BF16 too; `fp8`, `mxfp8`, `nvfp4`: as `bf16-master` with the layers' matmuls in that format.
        optimizer: the optimizer and its schedule.
        accumulation_steps: micro-batches in a step; each has batch_size / accumulation_steps sequences.
        recompute: `none` keeps every activation; `full` keeps each layer's input and runs the layer again; `selective`
            runs the core of attention again (scores and softmax; arXiv:2205.05198, section 5).
        recompute_layers: with `full`, layers of each pipeline chunk that are run again; 0 is all of them.
        recompute_every: with `full`, every n-th layer is run again, the first of each n; 1 is all of them.
        loss_chunk: tokens of a micro-batch whose logits exist at once: head and loss are computed so many at a time,
            and their gradients with them; 0 is all at once.
        document_mask: a token sees only tokens of its own document.
        load_balance: weight of the load-balancing loss of mixtures (Switch Transformer, arXiv:2101.03961, eq. 4).
        attention: `math` writes scores to memory (matmul, softmax, matmul); `fused` is the scaled-dot-product kernel.
        num_tokens: tokens of the whole run; 0 is open.
        offload_activations: share of the kept activations that waits in host memory.
        offload_optimizer: the optimizer's state and its update live in host memory.
        lora_rank: rank of a low-rank adapter beside every linear layer of attention and MLP, the only thing trained
            (LoRA, arXiv:2106.09685); 0 trains the model itself.
        lora_targets: linear layers with an adapter, by their last name: `query`, `key`, `value`, `output`, `gate`,
            `up`, `down` ...; empty is all of attention and MLP.
        trainable: parts that are trained (`embedding`, `layers`, `prediction`, `head`; `layers.24-31` are layers by
            number, a tied head is the embedding); empty is all.
        seed: seeds initialisation, dropout and data order.
        initialization: `fan_in` has std 1/sqrt(fan_in), cut at 3 of its own standard deviations; `gpt2` has std 0.02
            and residual projections scaled by 1/sqrt(2·num_layers); `xavier` has variance 2/(fan_in + fan_out) (Glorot
            and Bengio 2010, eq. 12) and `kaiming` 2/fan_in (He et al., arXiv:1502.01852, eq. 10) in the layers, `mup`
            scales values and learning rates with the width over `mup_base_size` (arXiv:2203.03466, table 3).
        mup_base_size: hidden size at which `mup` changes nothing.
    """

    batch_size: int = 1
    sequence_length: Count = 1024
    precision: Precision = "fp32"
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)
    accumulation_steps: int = 1
    recompute: Recompute = "none"
    recompute_layers: int = 0
    recompute_every: int = 1
    loss_chunk: int = 0
    document_mask: bool = False
    load_balance: float = 0.0
    attention: Literal["math", "fused"] = "fused"
    num_tokens: Count = 0
    offload_activations: float = 0.0
    offload_optimizer: bool = False
    lora_rank: int = 0
    lora_targets: tuple[str, ...] = ()
    trainable: tuple[str, ...] = ()
    seed: int = 1337
    initialization: Literal["fan_in", "gpt2", "xavier", "kaiming", "mup"] = "fan_in"
    mup_base_size: int = 256

    @property
    def micro_batch_size(self) -> int:
        """Sequences in one micro-batch."""
        return self.batch_size // self.accumulation_steps

    @property
    def tokens_per_step(self) -> int:
        """Tokens in one optimizer step."""
        return self.batch_size * self.sequence_length

    @property
    def num_steps(self) -> int:
        """Optimizer steps of the whole run, the last one included even where it is not full; 0 if open."""
        return -(-self.num_tokens // self.tokens_per_step)

    def recomputes_layer(self, index: int) -> bool:
        """Whether layer `index` of the model, from 0, is run again as a whole.

        >>> [Recipe(recompute="full", recompute_every=2).recomputes_layer(i) for i in range(4)]
        [True, False, True, False]
        >>> [Recipe(recompute="full", recompute_layers=3).recomputes_layer(i) for i in range(4)]
        [True, True, True, False]
        """
        if self.recompute != "full" or index % self.recompute_every != 0:
            return False
        return self.recompute_layers == 0 or index < self.recompute_layers


def default_sequence_length(spec: ModelSpec) -> int:
    """Tokens in a sequence where none are asked for: the model's longest, or 8,192 if that is less.

    Models of 128K positions were trained on 8K sequences for nearly all tokens (Llama 3.1, arXiv:2407.21783, 3.4.2).
    """
    return min(spec.max_sequence_length, _LONGEST_DEFAULT)
