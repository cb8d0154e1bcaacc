"""Architectures of GPT's build: LayerNorm with bias and a plain MLP; positions of every kind.

Each function reads what transformers' class of the same name does differently.
"""

from __future__ import annotations

from typing import Any

from torchledger.spec.huggingface.keys import Keys
from torchledger.spec.huggingface.parts import Parts, activation, attention, head_size, rotary, windows
from torchledger.spec.model import MlpSpec, NormSpec, PositionSpec


def gpt2(keys: Keys) -> Parts:
    """GPT-2, and GPT-3's sizes in its build."""
    scaled_again = keys.flag("scale_attn_by_inverse_layer_idx")
    return _learned(keys, ("the further scale 1 / (layer + 1) on the scores is left out",) if scaled_again else ())


def gpt_bigcode(keys: Keys) -> Parts:
    """StarCoder 1 and SantaCoder: GPT-2 with one key-value head."""
    # whatever the file says of num_key_value_heads: transformers takes 1 or all
    return _learned(keys, (), num_key_value_heads=1 if keys.flag("multi_query") else None)


def gptj(keys: Keys) -> Parts:
    """GPT-J: one norm for both parallel branches, biases on MLP and head alone, `rotary_dim` of a head rotated."""
    turned = keys.optional_size("rotary_dim")
    fraction = 1.0 if turned is None else turned / head_size(keys)
    return Parts(
        attention=attention(keys),
        mlp=_mlp(keys, bias=True),
        norm=_norm(keys, shared=True),
        position=PositionSpec(kind="rotary", rotary_fraction=fraction),
        parallel=True,
        head_bias=True,
    )


def gpt_neox(keys: Keys) -> Parts:
    """GPT-NeoX and Pythia: parallel branches with a norm each, a quarter of each head rotated."""
    bias = keys.flag("attention_bias")
    return Parts(
        attention=attention(keys, bias=bias, output_bias=bias),
        mlp=_mlp(keys, bias=True),
        norm=_norm(keys),
        position=rotary(keys),
        parallel=keys.flag("use_parallel_residual"),
    )


def phi(keys: Keys) -> Parts:
    """Phi 1, 1.5 and 2: one norm for both parallel branches, biases everywhere, also on the head."""
    if keys.flag("qk_layernorm"):
        keys.refuse("qk_layernorm", "Phi's LayerNorm with bias on queries and keys cannot be described")
    return Parts(
        attention=attention(keys, bias=True, output_bias=True),
        mlp=_mlp(keys, bias=True),
        norm=_norm(keys, shared=True),
        position=rotary(keys),
        parallel=True,
        head_bias=True,
    )


def opt(keys: Keys) -> Parts:
    """OPT (arXiv:2205.01068): ReLU, positions from row 2 on.

    OPT-350M alone has its norms after the residual addition, none before the head, and narrower embeddings with a
    projection in and out.
    """
    bias, before = keys.flag("enable_bias"), keys.flag("do_layer_norm_before")
    narrow = keys.optional_size("word_embed_proj_dim")
    affine = keys.flag("layer_norm_elementwise_affine")
    return Parts(
        attention=attention(keys, bias=bias, output_bias=bias),
        mlp=_mlp(keys, bias=bias),
        norm=NormSpec(
            "layer",
            affine=affine,
            bias=affine,
            placement="pre" if before else "residual",
            final=before and not keys.flag("_remove_final_layer_norm"),
        ),
        position=PositionSpec(kind="learned", offset=2),
        embedding_size=None if narrow == keys.size("hidden_size") else narrow,
    )


def bloom(keys: Keys) -> Parts:
    """BLOOM (arXiv:2211.05100): ALiBi, a norm right after the embedding, the tanh form of GELU."""
    if keys.flag("apply_residual_connection_post_layernorm"):
        keys.refuse("apply_residual_connection_post_layernorm", "a residual taken after the norm cannot be described")
    return Parts(
        attention=attention(keys, bias=True, output_bias=True),
        mlp=MlpSpec(4 * keys.size("hidden_size"), "plain", "gelu_tanh", up_bias=True, down_bias=True),
        norm=_norm(keys),
        position=PositionSpec(kind="alibi"),
        embedding_norm=True,
    )


def falcon(keys: Keys) -> Parts:
    """Falcon (arXiv:2311.16867) in its three forms.

    7B has one key-value head and one norm for both branches; 40B and 180B (the new decoder architecture) have 8 and a
    norm each; the RW models have ALiBi, biases and the branches one after the other.
    """
    bias, new, parallel = keys.flag("bias"), keys.flag("new_decoder_architecture"), keys.flag("parallel_attn")
    num_norms = keys.optional_size("num_ln_in_parallel_attn") or (2 if new else 1)
    grouped = {} if new else {"num_key_value_heads": 1 if keys.flag("multi_query") else None}
    return Parts(
        attention=attention(keys, bias=bias, output_bias=bias, **grouped),
        mlp=_mlp(keys, bias=bias),
        norm=_norm(keys, shared=parallel and num_norms == 1),
        position=PositionSpec(kind="alibi") if keys.flag("alibi") else rotary(keys),
        parallel=parallel,
    )


def starcoder2(keys: Keys) -> Parts:
    """StarCoder 2 (arXiv:2402.19173): grouped keys, a window, rotary positions and biases."""
    bias = keys.flag("use_bias")
    return Parts(
        attention=attention(keys, bias=bias, output_bias=bias, window_pattern=windows(keys)),
        mlp=_mlp(keys, bias=bias),
        norm=_norm(keys),
        position=rotary(keys),
    )


def _learned(keys: Keys, notes: tuple[str, ...], **other: Any) -> Parts:
    if keys.flag("add_cross_attention"):
        keys.refuse("add_cross_attention", "a decoder that reads an encoder is not a decoder-only model")
    plain = not keys.flag("scale_attn_weights")
    return Parts(
        attention=attention(keys, bias=True, output_bias=True, scale=1.0 if plain else None, **other),
        mlp=_mlp(keys, bias=True),
        norm=_norm(keys),
        position=PositionSpec(kind="learned"),
        notes=notes,
    )


def _mlp(keys: Keys, *, bias: bool) -> MlpSpec:
    width = keys.optional_size("intermediate_size") or 4 * keys.size("hidden_size")
    return MlpSpec(width, "plain", activation(keys), up_bias=bias, down_bias=bias)


def _norm(keys: Keys, *, shared: bool = False) -> NormSpec:
    return NormSpec("layer", bias=True, epsilon=keys.number("norm_eps"), shared=shared)
