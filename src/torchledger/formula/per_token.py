"""Training FLOPs per token, by our count and by the formulas in circulation, so that their spread is seen.

All are forward and backward together and without recompute, unless the name says so. N is the number of parameters, L
layers, H heads of size Q, T tokens in a sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torchledger.formula.count import count, default_recipe
from torchledger.formula.parameters import num_active_parameters, num_embedding_parameters
from torchledger.ledger import Amount, Convention
from torchledger.spec import ModelSpec, Recipe


@dataclass(frozen=True, slots=True)
class PerToken:
    """One way to say what training on a token costs.

    Attributes:
        name: who counts so.
        formula: what is computed.
        flops: FLOPs per token.
        source: where the formula stands.
    """

    name: str
    formula: str
    flops: Amount
    source: str


def flops_per_token(spec: ModelSpec, recipe: Recipe | None = None, convention: Convention | None = None) -> float:
    """Our own count: FLOPs of one step under `convention` over its tokens; whole where it divides.

    >>> from torchledger.spec import AttentionSpec, MlpSpec
    >>> tiny = ModelSpec("tiny", 100, 64, 2, 32, AttentionSpec(4), MlpSpec(64))
    >>> flops_per_token(tiny, Recipe(batch_size=2, sequence_length=8))  # 3·790528/16, see `count`
    148224.0
    """
    recipe = default_recipe(spec) if recipe is None else recipe
    total: float = count(spec, recipe, convention=convention).flops
    return total / recipe.tokens_per_step


def per_token(spec: ModelSpec, sequence_length: int | None = None) -> tuple[PerToken, ...]:
    """FLOPs per token of one sequence, by our count (full and exact attention) and by each formula in circulation.

    Args:
        spec: the model.
        sequence_length: tokens T; nothing is that of `default_recipe(spec)`.
    """
    T = default_recipe(spec).sequence_length if sequence_length is None else sequence_length
    recipe = Recipe(batch_size=1, sequence_length=T)
    ours = tuple(
        PerToken(
            f"this ledger, attention {attention}",
            "sum of the lines",
            flops_per_token(spec, recipe, Convention(attention=attention)),
            "torchledger.formula.count",
        )
        for attention in ("full", "exact")
    )
    circulating = (
        PerToken(name, formula, function(spec, T), source) for name, (formula, source, function) in FORMULAS.items()
    )
    return (*ours, *circulating)


def six_n(spec: ModelSpec, T: Amount) -> Amount:
    """6·N, all parameters; of a mixture those that a token visits (Hoffmann et al., arXiv:2203.15556, section 3.2)."""
    del T  # the formula has no attention
    return 6 * num_active_parameters(spec)


def six_n_without_embeddings(spec: ModelSpec, T: Amount) -> Amount:
    """6·N with neither embeddings nor head in N (Kaplan et al., arXiv:2001.08361, section 2.1)."""
    del T
    return 6 * (num_active_parameters(spec) - num_embedding_parameters(spec) - _untied_head(spec))


def kaplan(spec: ModelSpec, T: Amount) -> Amount:
    """6·N + 6·L·T·H·Q: a context term of 2·L·T·d_attn forward (Kaplan et al., arXiv:2001.08361, table 1)."""
    return six_n_without_embeddings(spec, T) + 6 * spec.num_layers * T * _attention_width(spec)


def palm(spec: ModelSpec, T: Amount) -> Amount:
    """6·N + 12·L·H·Q·T (Chowdhery et al., arXiv:2204.02311, appendix B)."""
    return six_n(spec, T) + 12 * spec.num_layers * T * _attention_width(spec)


def nanogpt(spec: ModelSpec, T: Amount) -> Amount:
    """PaLM's, with the learned positions out of N (`estimate_mfu` in github.com/karpathy/nanoGPT model.py)."""
    return palm(spec, T) - 6 * _learned_positions(spec)


def llm_foundry(spec: ModelSpec, T: Amount) -> Amount:
    """6·N + 12·L·D·T, all parameters: PaLM's with the model's width D where PaLM has H·Q.

    Source: `flops_per_batch` in github.com/mosaicml/llm-foundry llmfoundry/models/mpt/modeling_mpt.py.
    """
    return six_n(spec, T) + 12 * spec.num_layers * T * spec.hidden_size


def torchtitan(spec: ModelSpec, T: Amount) -> Amount:
    """PaLM's, with tables that are only looked up out of N: positions, and the embedding unless it is the head too.

    Source: `get_nparams_and_flops` in github.com/pytorch/torchtitan, which leaves out every `nn.Embedding` (2026); its
    `get_num_flop_per_token` of 2024 left out `tok_embeddings`, which is the same for the models it had.
    """
    return nanogpt(spec, T) - (0 if spec.tied_embeddings else 6 * spec.vocab_size * spec.hidden_size)


def megatron_whole(spec: ModelSpec, T: Amount) -> Amount:
    """6 times the weights of matmuls, head included, and 12·L·H·Q·T: Megatron-Core's count in 2024.

    Source: `num_floating_point_operations` in github.com/NVIDIA/Megatron-LM megatron/training/training.py, core_r0.8.
    """
    return megatron(spec, T) + 6 * spec.num_layers * T * _attention_width(spec)


def megatron(spec: ModelSpec, T: Amount) -> Amount:
    """6 times the weights of matmuls, head included, and 6·L·H·Q·T for causal attention: Megatron-Core since 2025.

    Source: `num_floating_point_operations` in github.com/NVIDIA/Megatron-LM megatron/training/training.py.
    """
    return 6 * (_layer_weights(spec) + _head_weights(spec)) + 6 * spec.num_layers * T * _attention_width(spec)


def chinchilla(spec: ModelSpec, T: Amount) -> Amount:
    """Appendix F: embedding counted as a matmul, softmax as 3·H·T; weights of the model's own matrices.

    The paper has multi-head attention and an MLP of two matrices, 4·D·F; a gated one has three here, 6·D·F.

    Source: Hoffmann et al., arXiv:2203.15556, appendix F.
    """
    return chinchilla_table(spec, T) + 3 * (2 + 2) * spec.vocab_size * spec.hidden_size


def chinchilla_table(spec: ModelSpec, T: Amount) -> Amount:
    """The same without embedding and logits, which is what table A4 of the paper shows."""
    width = _attention_width(spec)
    mixing = 2 * T * width + 3 * spec.attention.num_heads * T + 2 * T * width
    return 3 * (2 * _layer_weights(spec) + spec.num_layers * mixing)


def casson(spec: ModelSpec, T: Amount) -> Amount:
    """3·(4·d + 2·L·(12·d² + T·d) + 2·d·V): Kaplan's table 1 with heads of d/H and a 4·d MLP of two matrices.

    Source: Casson, adamcasson.com/posts/transformer-flops, `openai_flops_per_token` times 3.
    """
    d = spec.hidden_size
    return 3 * (4 * d + 2 * spec.num_layers * (12 * d * d + T * d) + 2 * d * spec.vocab_size)


def narayanan(spec: ModelSpec, T: Amount) -> Amount:
    """72·L·d²·(1 + T/(6·d) + V/(12·L·d)) (Korthikanti et al., arXiv:2205.05198, appendix A; MHA and a 4·d MLP)."""
    L, d, V = spec.num_layers, spec.hidden_size, spec.vocab_size
    return 72 * L * d * d + 12 * L * d * T + 6 * d * V


def narayanan_hardware(spec: ModelSpec, T: Amount) -> Amount:
    """96·L·d²·(1 + T/(6·d) + V/(16·L·d)), full recompute in (Narayanan et al., arXiv:2104.04473, equation 3)."""
    L, d, V = spec.num_layers, spec.hidden_size, spec.vocab_size
    return 96 * L * d * d + 16 * L * d * T + 6 * d * V


_Formula = tuple[str, str, Callable[[ModelSpec, Amount], Amount]]

#: Name -> (formula, source, function). One more formula is one more line.
FORMULAS: Mapping[str, _Formula] = {
    "6N": ("6·N", "https://arxiv.org/abs/2203.15556", six_n),
    "6N without embeddings": (
        "6·(N - V·D·(1 or 2) - P·D)",
        "https://arxiv.org/abs/2001.08361",
        six_n_without_embeddings,
    ),
    "Kaplan": ("6·(N without embeddings) + 6·L·T·H·Q", "https://arxiv.org/abs/2001.08361", kaplan),
    "PaLM appendix B": ("6·N + 12·L·H·Q·T", "https://arxiv.org/abs/2204.02311", palm),
    "nanoGPT": ("6·(N - P·D) + 12·L·H·Q·T", "https://github.com/karpathy/nanoGPT", nanogpt),
    "torchtitan 2026": (
        "6·(N - P·D - V·D if untied) + 12·L·H·Q·T",
        "https://github.com/pytorch/torchtitan",
        torchtitan,
    ),
    "llm-foundry": ("6·N + 12·L·D·T", "https://github.com/mosaicml/llm-foundry", llm_foundry),
    "Megatron-Core 2024": (
        "6·(matmul weights) + 12·L·H·Q·T",
        "https://github.com/NVIDIA/Megatron-LM/tree/core_r0.8.0",
        megatron_whole,
    ),
    "Megatron-Core 2025": ("6·(matmul weights) + 6·L·H·Q·T", "https://github.com/NVIDIA/Megatron-LM", megatron),
    "Chinchilla appendix F": (
        "3·(2·V·D + L·(attention + MLP) + 2·D·V)",
        "https://arxiv.org/abs/2203.15556",
        chinchilla,
    ),
    "Chinchilla table A4": ("3·L·(attention + MLP)", "https://arxiv.org/abs/2203.15556", chinchilla_table),
    "Casson": (
        "3·(4·D + 2·L·(12·D² + T·D) + 2·D·V)",
        "https://www.adamcasson.com/posts/transformer-flops",
        casson,
    ),
    "Narayanan": ("72·L·D²·(1 + T/(6·D) + V/(12·L·D))", "https://arxiv.org/abs/2205.05198", narayanan),
    "Narayanan with recompute": (
        "96·L·D²·(1 + T/(6·D) + V/(16·L·D))",
        "https://arxiv.org/abs/2104.04473",
        narayanan_hardware,
    ),
}


def _attention_width(spec: ModelSpec) -> Amount:
    """H·Q; for MLA the mean of its query and value widths, which is what the product costs."""
    if spec.attention.kind == "latent":
        return spec.attention.num_heads * (spec.head_size + spec.value_head_size) / 2
    return spec.attention.num_heads * spec.head_size


def _layer_weights(spec: ModelSpec) -> Amount:
    """Weights of all layers' matmuls that a token meets: of a mixture its router, its experts, the shared one."""
    mixtures = sum(group.count for group in spec.layer_groups if group.is_moe)
    dense = (spec.num_layers - mixtures) * _mlp_weights(spec, spec.mlp.intermediate_size)
    weights = spec.num_layers * _attention_weights(spec) + dense
    if spec.moe is None:
        return weights
    width = spec.moe.experts_per_token * spec.moe.intermediate_size + spec.moe.shared_intermediate_size
    gates = spec.moe.num_experts + (1 if spec.moe.shared_gate else 0)
    return weights + mixtures * (_mlp_weights(spec, width) + gates * spec.hidden_size)


def _mlp_weights(spec: ModelSpec, intermediate_size: Amount) -> Amount:
    return (3 if spec.mlp.kind == "gated" else 2) * spec.hidden_size * intermediate_size


def _attention_weights(spec: ModelSpec) -> Amount:
    """Query, key, value and output of a layer; of latent attention its maps down and up (arXiv:2405.04434, 2.1.2)."""
    part, H, D = spec.attention, spec.attention.num_heads, spec.hidden_size
    if part.kind == "standard":
        return 2 * D * (H + spec.num_key_value_heads) * spec.head_size
    queries = H * spec.head_size
    query = part.query_rank * (D + queries) if part.query_rank else D * queries
    key_value = D * (part.key_value_rank + part.rotary_head_size)
    up = part.key_value_rank * H * (part.plain_head_size + part.value_head_size)
    return query + key_value + up + H * part.value_head_size * D


def _head_weights(spec: ModelSpec) -> Amount:
    """The head, and the projections in and out of an embedding narrower than the model (OPT-350M)."""
    if spec.embedding_size is None:
        return spec.vocab_size * spec.hidden_size
    return (spec.vocab_size + 2 * spec.hidden_size) * spec.embedding_size


def _untied_head(spec: ModelSpec) -> Amount:
    if spec.tied_embeddings:
        return 0
    return spec.vocab_size * (spec.hidden_size if spec.embedding_size is None else spec.embedding_size)


def _learned_positions(spec: ModelSpec) -> Amount:
    return spec.num_position_rows * spec.hidden_size
