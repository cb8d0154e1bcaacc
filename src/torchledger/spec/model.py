"""`ModelSpec`: a decoder-only Transformer as pure data.

The formulas read it, the trainer builds from it, the planner rewrites it: one truth. Sizes are plain integers; a symbol
may stand in place of any of them (`count --symbolic`), which is why nothing here divides where a field can be given.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from torchledger.units import Count


class SpecError(ValueError):
    """A model, recipe or strategy that cannot be: the message says which field, why, and what would be accepted."""


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """How a layer mixes tokens.

    MHA has as many key-value heads as heads, GQA fewer, MQA one::

        heads            q q q q q q q q      q q q q q q q q      q q q q q q q q
        key-value heads  k k k k k k k k      k   k   k   k        k
                         MHA (8)              GQA (4)              MQA (1)

    Attributes:
        num_heads: query heads H.
        num_key_value_heads: key-value heads K; nothing means H.
        head_size: width of one query and key head; nothing means hidden_size / num_heads.
        kind: `standard` projections, or `latent` (MLA, DeepSeek-V2, arXiv:2405.04434 section 2.1).
        query_bias, key_bias, value_bias, output_bias: biases of the four projections (MLA has none).
        query_key_norm: none; `head`, one weight of head_size shared by all heads (Qwen3, Gemma 3); or `full`, over the
            whole projection (OLMo 2).
        logit_soft_cap: scores are cap·tanh(score / cap) (Gemma 2).
        window_pattern: window in tokens layer by layer, repeated over the depth; 0 is full attention. `(4096, 0)` is
            Gemma 2. A window of w lets a token see itself and the w - 1 before it. Empty is full everywhere.
        scale: what scores are multiplied with; nothing means 1/sqrt(head_size).
        query_rank, key_value_rank: MLA's compressed widths (query_rank 0: queries are not compressed).
        rotary_head_size, plain_head_size, value_head_size: MLA's head parts with and without rotation,
            and its value head.
        clip: queries, keys and values are clamped to ±clip after their projection (OLMo 1).
        dropout: probability on the attention weights in training.
    """

    num_heads: int
    num_key_value_heads: int | None = None
    head_size: int | None = None
    kind: Literal["standard", "latent"] = "standard"
    query_bias: bool = False
    key_bias: bool = False
    value_bias: bool = False
    output_bias: bool = False
    query_key_norm: Literal["none", "head", "full"] = "none"
    logit_soft_cap: float | None = None
    window_pattern: tuple[int, ...] = ()
    scale: float | None = None
    query_rank: int = 0
    key_value_rank: int = 0
    rotary_head_size: int = 0
    plain_head_size: int = 0
    value_head_size: int = 0
    clip: float | None = None
    dropout: float = 0.0


@dataclass(frozen=True, slots=True)
class MlpSpec:
    """The feed-forward part of a layer.

    Attributes:
        intermediate_size: its inner width F.
        kind: `gated` has gate, up and down (SwiGLU, GeGLU), `plain` has up and down.
        activation: `silu`, exact `gelu`, `gelu_tanh`, `relu`, `relu_squared`.
        up_bias, down_bias: biases (of gate and up; of down).
    """

    intermediate_size: int
    kind: Literal["gated", "plain"] = "gated"
    activation: Literal["silu", "gelu", "gelu_tanh", "relu", "relu_squared"] = "silu"
    up_bias: bool = False
    down_bias: bool = False


@dataclass(frozen=True, slots=True)
class NormSpec:
    """Normalization and where it stands.

    Attributes:
        kind: `rms` or `layer`.
        affine: whether it has a weight (OLMo 1 has none).
        bias: whether a LayerNorm has a bias too.
        epsilon: added to the variance.
        unit_offset: the weight is stored as w and applied as 1 + w (Gemma).
        placement: `pre` before attention and MLP (GPT-2, Llama); `post` on their outputs, before the residual addition
            (OLMo 2); `sandwich` both (Gemma 2); `residual` after the residual addition (the original Transformer).
        shared: a parallel block has one norm for both branches (Phi, GPT-J) instead of two (GPT-NeoX).
        final: whether a norm stands before the head.
    """

    kind: Literal["rms", "layer"] = "rms"
    affine: bool = True
    bias: bool = False
    epsilon: float = 1e-5
    unit_offset: bool = False
    placement: Literal["pre", "post", "sandwich", "residual"] = "pre"
    shared: bool = False
    final: bool = True


@dataclass(frozen=True, slots=True)
class PositionSpec:
    """How the model knows where a token stands.

    Attributes:
        kind: `rotary`, `alibi`, `learned` or `none`.
        rotary_fraction: share of each head that is rotated (GPT-NeoX 0.25, Phi 0.4).
        theta: base of the rotary frequencies.
        local_theta: base in layers with a window, where it differs (Gemma 3).
        scaling: name and factors of a rotary extension (`{"kind": "llama3", "factor": 8.0}`), for the trainer.
        num_learned: rows of the learned table; nothing means max_sequence_length.
        offset: rows before position 0 (OPT has 2).
    """

    kind: Literal["rotary", "alibi", "learned", "none"] = "rotary"
    rotary_fraction: float = 1.0
    theta: float = 10000.0
    local_theta: float | None = None
    scaling: dict[str, float | str] = field(default_factory=dict)
    num_learned: int | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class MoeSpec:
    """Mixture of experts in place of the MLP. Experts have the kind, activation and biases of the dense MLP.

    Attributes:
        num_experts: routed experts E.
        experts_per_token: how many of them a token visits.
        intermediate_size: inner width of one routed expert.
        shared_intermediate_size: inner width of all shared experts together; 0 is none.
        shared_gate: a sigmoid gate on the shared expert (Qwen2-MoE).
        num_leading_dense_layers: first layers that keep the dense MLP (DeepSeek-V2: 1, V3: 3).
        every: every n-th layer is a mixture (1: all).
        router_bias: a bias of E on the scores, used for choosing only (DeepSeek-V3).
        scoring: `softmax` or `sigmoid`.
        normalize_weights: whether the chosen experts' weights are scaled to sum to one.
        capacity_factor: every expert computes this many times its even share of the tokens, padded or cut to it
            (GShard, arXiv:2006.16668); 0 drops and pads nothing.
    """

    num_experts: int
    experts_per_token: int
    intermediate_size: int
    shared_intermediate_size: int = 0
    shared_gate: bool = False
    num_leading_dense_layers: int = 0
    every: int = 1
    router_bias: bool = False
    scoring: Literal["softmax", "sigmoid"] = "softmax"
    normalize_weights: bool = True
    capacity_factor: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A decoder-only Transformer.

    Attributes:
        name: what it is called.
        vocab_size: rows V of the embedding as stored.
        max_sequence_length: longest sequence it was made for.
        num_layers: depth L.
        hidden_size: width D of the residual stream.
        attention, mlp, norm, position, moe: the parts; without `moe` every layer has the dense `mlp`.
        parallel: attention and MLP read the same input and are added together (GPT-J, GPT-NeoX, Falcon, Phi).
        tied_embeddings: the head is the embedding's weight.
        head_bias: a bias of V on the head (Phi, GPT-J).
        embedding_norm: a norm right after the embedding (BLOOM).
        embedding_scale: the embedding is multiplied with sqrt(hidden_size) (Gemma).
        embedding_size: width of the embedding where it differs from hidden_size, with a projection in and out
            (OPT-350M).
        final_logit_soft_cap: logits are cap·tanh(logit / cap) (Gemma 2).
        dropout: probability on the embedding and on what attention and MLP add to the residual stream (GPT-2, GPT-3).
        num_prediction_layers: further layers that each predict one more token ahead, with the embedding and the head
            shared (multi-token prediction, DeepSeek-V3, arXiv:2412.19437, section 2.2).
        source: where the figures come from.
        notes: what the source model has and this description leaves out; an answer counts them as assumptions.
    """

    name: str
    vocab_size: Count
    max_sequence_length: Count
    num_layers: int
    hidden_size: int
    attention: AttentionSpec
    mlp: MlpSpec
    norm: NormSpec = field(default_factory=NormSpec)
    position: PositionSpec = field(default_factory=PositionSpec)
    moe: MoeSpec | None = None
    parallel: bool = False
    tied_embeddings: bool = False
    head_bias: bool = False
    embedding_norm: bool = False
    embedding_scale: bool = False
    embedding_size: int | None = None
    final_logit_soft_cap: float | None = None
    dropout: float = 0.0
    num_prediction_layers: int = 0
    source: str = ""
    notes: tuple[str, ...] = ()

    @property
    def head_size(self) -> int:
        """Width of one query and key head (for MLA: its plain and rotary parts together)."""
        attention = self.attention
        if attention.kind == "latent":
            return attention.plain_head_size + attention.rotary_head_size
        return self.hidden_size // attention.num_heads if attention.head_size is None else attention.head_size

    @property
    def value_head_size(self) -> int:
        """Width of one value head."""
        return self.attention.value_head_size if self.attention.kind == "latent" else self.head_size

    @property
    def num_key_value_heads(self) -> int:
        """Key-value heads K, H where none were given (and for MLA, whose keys are expanded to every head)."""
        attention = self.attention
        if attention.kind == "latent" or attention.num_key_value_heads is None:
            return attention.num_heads
        return attention.num_key_value_heads

    @property
    def has_dropout(self) -> bool:
        """Whether a training step draws random numbers."""
        return self.dropout > 0 or self.attention.dropout > 0

    @property
    def rotary_size(self) -> int:
        """How many of a head's dimensions are rotated; 0 without rotary positions."""
        if self.position.kind != "rotary":
            return 0
        if self.attention.kind == "latent":
            return self.attention.rotary_head_size
        if self.position.rotary_fraction == 1:
            return self.head_size
        return int(self.head_size * self.position.rotary_fraction)

    @property
    def num_position_rows(self) -> int:
        """Rows of the learned position table, its offset included; 0 without one."""
        if self.position.kind != "learned":
            return 0
        rows = self.max_sequence_length if self.position.num_learned is None else self.position.num_learned
        return rows + self.position.offset

    @property
    def layer_groups(self) -> tuple[LayerGroup, ...]:
        """The depth as runs of equal layers, in order; a uniform model is one group of `num_layers`, maybe a symbol."""
        if not self.attention.window_pattern and self.moe is None:
            return (LayerGroup(window=0, is_moe=False, first=0, count=self.num_layers),)
        groups: list[LayerGroup] = []
        for index in range(self.num_layers):
            window, is_moe = self._window(index), self._is_moe(index)
            if groups and (groups[-1].window, groups[-1].is_moe) == (window, is_moe):
                last = groups.pop()
                groups.append(LayerGroup(window, is_moe, last.first, last.count + 1))
            else:
                groups.append(LayerGroup(window, is_moe, index, 1))
        return tuple(groups)

    def layer(self, index: int) -> LayerGroup:
        """The layer at `index` as a group of one."""
        return LayerGroup(self._window(index), self._is_moe(index), index, 1)

    def _window(self, index: int) -> int:
        pattern = self.attention.window_pattern
        return pattern[index % len(pattern)] if pattern else 0

    def _is_moe(self, index: int) -> bool:
        moe = self.moe
        return moe is not None and index >= moe.num_leading_dense_layers and (index + 1) % moe.every == 0


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """A run of equal layers.

    Attributes:
        window: attention window in tokens, 0 is full.
        is_moe: a mixture of experts instead of the dense MLP.
        first: index of the first of them.
        count: how many.
    """

    window: int
    is_moe: bool
    first: int
    count: int
