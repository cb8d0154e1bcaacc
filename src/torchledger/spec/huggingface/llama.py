"""Architectures of Llama's build: RMSNorm before attention and a gated MLP, no biases, rotary positions.

Each function reads what transformers' class of the same name does differently.
"""

from __future__ import annotations

from typing import Literal

from torchledger.spec.huggingface.keys import Keys
from torchledger.spec.huggingface.parts import (
    Parts,
    activation,
    attention,
    head_size,
    rotary,
    windows,
    windows_by_layer,
)
from torchledger.spec.model import AttentionSpec, MlpSpec, NormSpec


def llama(keys: Keys) -> Parts:
    """Llama 1 to 3, and the many that share its class (TinyLlama, Vicuna, Yi, SmolLM)."""
    bias = keys.flag("attention_bias")
    return _build(keys, attention(keys, bias=bias, output_bias=bias))


def mistral(keys: Keys) -> Parts:
    """Mistral 7B: grouped keys and a window on every layer, null from version 0.2 on."""
    return _build(keys, attention(keys, window_pattern=windows(keys)))


def qwen2(keys: Keys) -> Parts:
    """Qwen 2 and 2.5: biases on query, key and value; a window on the upper layers if it is switched on."""
    return _build(keys, attention(keys, bias=True, window_pattern=_upper_windows(keys)))


def qwen3(keys: Keys) -> Parts:
    """Qwen 3: a norm on every query and key head, head size apart from hidden size."""
    bias = keys.flag("attention_bias")
    pattern = _upper_windows(keys)
    return _build(keys, attention(keys, bias=bias, output_bias=bias, query_key_norm="head", window_pattern=pattern))


def gemma(keys: Keys) -> Parts:
    """Gemma 1: GeGLU, norms of weight 1 + w, embeddings times sqrt(hidden_size).

    Its config says `gelu` and means the tanh form (transformers, configuration_gemma.py).
    """
    form = activation(keys)
    bias = keys.flag("attention_bias")
    return Parts(
        attention=attention(keys, bias=bias, output_bias=bias),
        mlp=MlpSpec(keys.size("intermediate_size"), "gated", "gelu_tanh" if form == "gelu" else form),
        norm=NormSpec("rms", epsilon=keys.number("norm_eps"), unit_offset=True),
        position=rotary(keys),
        embedding_scale=True,
    )


def gemma2(keys: Keys) -> Parts:
    """Gemma 2 (arXiv:2408.00118): every other layer has a window, norms before and after, soft caps."""
    layers = range(keys.size("num_hidden_layers"))
    return _gemma_sandwich(keys, [layer % 2 == 0 for layer in layers], query_key_norm="none")


def gemma3(keys: Keys) -> Parts:
    """Gemma 3 (arXiv:2503.19786): five layers with a window to one without, norms on queries and keys."""
    period = 1 if keys.items("layer_types") else keys.size("sliding_window_pattern")
    layers = range(keys.size("num_hidden_layers"))
    return _gemma_sandwich(keys, [(layer + 1) % period != 0 for layer in layers], query_key_norm="head")


def _gemma_sandwich(keys: Keys, is_windowed: list[bool], query_key_norm: Literal["none", "head"]) -> Parts:
    scalar, bias = keys.number("query_pre_attn_scalar"), keys.flag("attention_bias")
    said = "hidden_activation" if "hidden_activation" in keys.given else "hidden_act"
    return Parts(
        attention=attention(
            keys,
            bias=bias,
            output_bias=bias,
            query_key_norm=query_key_norm,
            scale=None if scalar == head_size(keys) else scalar**-0.5,
            logit_soft_cap=keys.optional_number("attn_logit_softcapping"),
            window_pattern=windows_by_layer(keys, is_windowed),
        ),
        mlp=MlpSpec(keys.size("intermediate_size"), "gated", activation(keys, said)),
        norm=NormSpec("rms", epsilon=keys.number("norm_eps"), unit_offset=True, placement="sandwich"),
        position=rotary(keys, local=query_key_norm == "head"),
        embedding_scale=True,
        final_logit_soft_cap=keys.optional_number("final_logit_softcapping"),
    )


def olmo(keys: Keys) -> Parts:
    """OLMo 1 (arXiv:2402.00838): a LayerNorm without weight or bias, of epsilon 1e-5; clamped projections."""
    bias = keys.flag("attention_bias")
    return Parts(
        attention=attention(keys, bias=bias, output_bias=bias, clip=keys.optional_number("clip_qkv")),
        mlp=MlpSpec(keys.size("intermediate_size"), "gated", activation(keys)),
        norm=NormSpec("layer", affine=False, epsilon=1e-5),
        position=rotary(keys),
    )


def olmo2(keys: Keys) -> Parts:
    """OLMo 2 (arXiv:2501.00656): norms on the outputs, and over whole queries and keys."""
    bias = keys.flag("attention_bias")
    mixing = attention(keys, bias=bias, output_bias=bias, query_key_norm="full")
    return _build(keys, mixing, NormSpec("rms", epsilon=keys.number("norm_eps"), placement="post"))


def phi3(keys: Keys) -> Parts:
    """Phi 3 (arXiv:2404.14219): Llama's build with fused projections."""
    return _build(keys, attention(keys, window_pattern=windows(keys)))


def stablelm(keys: Keys) -> Parts:
    """StableLM: Llama's build with a LayerNorm and a quarter of each head rotated."""
    if keys.flag("qk_layernorm"):
        keys.refuse("qk_layernorm", "StableLM's norm with a weight for each head cannot be described")
    parallel = keys.flag("use_parallel_residual")
    return Parts(
        attention=attention(keys, bias=keys.flag("use_qkv_bias")),
        mlp=MlpSpec(keys.size("intermediate_size"), "gated", activation(keys)),
        norm=NormSpec("layer", bias=True, epsilon=keys.number("norm_eps"), shared=parallel),
        position=rotary(keys),
        parallel=parallel,
    )


def _build(keys: Keys, mixing: AttentionSpec, norm: NormSpec | None = None) -> Parts:
    bias = keys.flag("mlp_bias")
    return Parts(
        attention=mixing,
        mlp=MlpSpec(keys.size("intermediate_size"), "gated", activation(keys), up_bias=bias, down_bias=bias),
        norm=norm or NormSpec("rms", epsilon=keys.number("norm_eps")),
        position=rotary(keys),
    )


def _upper_windows(keys: Keys) -> tuple[int, ...]:
    if not keys.flag("use_sliding_window"):
        return ()
    first = keys.count("max_window_layers")
    return windows_by_layer(keys, [layer >= first for layer in range(keys.size("num_hidden_layers"))])
