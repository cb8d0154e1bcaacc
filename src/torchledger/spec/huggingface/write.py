"""`to_config`: a `ModelSpec` as the `config.json` from which transformers builds the same model.

What a family's config says stands in `written.toml`. Whether it says all of a model is judged by reading it back: a
family describes a model exactly when `from_config` gives that model again.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from torchledger.spec.huggingface.read import from_config
from torchledger.spec.model import ModelSpec, SpecError

_ACTIVATIONS = {
    "silu": "silu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_pytorch_tanh",
    "relu": "relu",
    "relu_squared": "relu2",
}


def to_config(spec: ModelSpec) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The config of the first family that describes the model, and what it does not say of it, in words.

    Args:
        spec: the model, whose sizes are numbers.

    Raises:
        SpecError: no known family describes it; for the nearest one the message says what it would lose.
    """
    wanted = _essence(spec)
    nearest: tuple[int, str] | None = None
    for model_type, family in _table().items():
        config = _config(spec, model_type, family)
        if config is None:
            continue
        try:
            read = _essence(from_config(config))
        except SpecError:
            continue
        lost = _differing(wanted, read)
        if not lost:
            return config, _left_out(spec)
        if nearest is None or len(lost) < nearest[0]:
            nearest = len(lost), f"{model_type}, the nearest, would not say {', '.join(lost)}"
    raise SpecError(
        f"{spec.name}: no Hugging Face family describes this model" + (f": {nearest[1]}" if nearest else "")
    )


def _config(spec: ModelSpec, model_type: str, family: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the family's config says; nothing where it has keys for which the model has nothing (experts)."""
    values = _values(spec)
    if not values.keys() >= set(family["keys"]):
        return None
    if model_type == "falcon" and values["alibi"]:
        return None  # Falcon multiplies ALiBi's slopes with 1/sqrt(head_size) and rounds them to bfloat16
    if model_type == "mixtral" and spec.moe is not None:
        values["intermediate_size"] = spec.moe.intermediate_size
    if model_type == "gpt2":
        values["activation_function"] = "gelu_new" if spec.mlp.activation == "gelu_tanh" else values["hidden_act"]
    said = {key: values[key] for key in family["keys"]}
    absent = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))  # defaults may lie beyond the vocabulary
    return {"architectures": [family["architecture"]], "model_type": model_type, **said, **absent}


def _values(spec: ModelSpec) -> dict[str, Any]:
    """Every key that a family may have, as this model would set it."""
    attention, mlp, norm, moe = spec.attention, spec.mlp, spec.norm, spec.moe
    K, activation = spec.num_key_value_heads, _ACTIVATIONS[mlp.activation]
    bias, biased = attention.query_bias, mlp.up_bias
    scale = spec.head_size**-0.5 if attention.scale is None else attention.scale
    return {
        "vocab_size": spec.vocab_size,
        "tie_word_embeddings": spec.tied_embeddings,
        **dict.fromkeys(("max_position_embeddings", "n_positions", "seq_length"), spec.max_sequence_length),
        **dict.fromkeys(("hidden_size", "n_embd"), spec.hidden_size),
        **dict.fromkeys(("num_hidden_layers", "n_layer"), spec.num_layers),
        **dict.fromkeys(("num_attention_heads", "n_head"), attention.num_heads),
        **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), K),
        "head_dim": spec.head_size,
        **dict.fromkeys(("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"), mlp.intermediate_size),
        **dict.fromkeys(("hidden_act", "hidden_activation", "activation_function", "activation"), activation),
        **dict.fromkeys(("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"), norm.epsilon),
        **dict.fromkeys(("attention_bias", "use_qkv_bias", "qkv_bias", "use_bias", "bias", "enable_bias"), bias),
        "mlp_bias": biased,
        "qk_layernorm": False,
        "use_parallel_residual": spec.parallel,
        "query_pre_attn_scalar": _whole(scale**-2),
        "attn_logit_softcapping": attention.logit_soft_cap,
        "final_logit_softcapping": spec.final_logit_soft_cap,
        "clip_qkv": attention.clip,
        "scale_attn_weights": attention.scale is None,
        "scale_attn_by_inverse_layer_idx": False,
        "word_embed_proj_dim": spec.embedding_size or spec.hidden_size,
        "do_layer_norm_before": norm.placement == "pre",
        "_remove_final_layer_norm": norm.placement == "pre" and not norm.final,
        "layer_norm_elementwise_affine": norm.affine,
        "apply_residual_connection_post_layernorm": False,
        **_dropouts(spec),
        **_positions(spec),
        **_windows(spec),
        **({} if moe is None else _experts(spec)),
        **_falcon(spec),
        **_latent(spec),
    }


def _dropouts(spec: ModelSpec) -> dict[str, float]:
    stream = ("resid_pdrop", "embd_pdrop", "hidden_dropout", "residual_dropout", "embedding_dropout", "dropout")
    return {
        **dict.fromkeys(stream, spec.dropout),
        **dict.fromkeys(("attention_dropout", "attn_pdrop"), spec.attention.dropout),
    }


def _positions(spec: ModelSpec) -> dict[str, Any]:
    position = spec.position
    kind = {"rope_type": position.scaling["kind"]} if position.scaling else {}
    factors = {key: value for key, value in position.scaling.items() if key != "kind"}
    scaling = {
        **kind,
        **{key: _whole(value) if "positions" in key or "position_" in key else value for key, value in factors.items()},
    }
    return {
        **dict.fromkeys(("rope_theta", "rotary_emb_base"), position.theta),
        "rope_local_base_freq": position.theta if position.local_theta is None else position.local_theta,
        "rope_scaling": scaling or None,
        **dict.fromkeys(("partial_rotary_factor", "rotary_pct"), position.rotary_fraction),
        "rotary_dim": spec.rotary_size,
        "alibi": position.kind == "alibi",
    }


def _windows(spec: ModelSpec) -> dict[str, Any]:
    windows = [spec.layer(index).window for index in range(spec.num_layers)]
    sizes = sorted(set(windows) - {0})
    return {
        "sliding_window": sizes[0] if sizes else None,
        "use_sliding_window": bool(sizes),
        "max_window_layers": next((index for index, window in enumerate(windows) if window), spec.num_layers),
        "layer_types": ["sliding_attention" if window else "full_attention" for window in windows],
    }


def _experts(spec: ModelSpec) -> dict[str, Any]:
    moe = spec.moe
    assert moe is not None
    shared = moe.shared_intermediate_size
    return {
        **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), moe.num_experts),
        "num_experts_per_tok": moe.experts_per_token,
        "moe_intermediate_size": moe.intermediate_size,
        "shared_expert_intermediate_size": shared,
        "n_shared_experts": shared // moe.intermediate_size,
        "decoder_sparse_step": moe.every,
        "mlp_only_layers": list(range(moe.num_leading_dense_layers)),
        "first_k_dense_replace": moe.num_leading_dense_layers,
        "norm_topk_prob": moe.normalize_weights,
        "routed_scaling_factor": 1.0,
        "n_group": 1,
        "topk_group": 1,
        "topk_method": "greedy",
    }


def _falcon(spec: ModelSpec) -> dict[str, Any]:
    K, H = spec.num_key_value_heads, spec.attention.num_heads
    new = K not in {1, H} or (spec.parallel and not spec.norm.shared)
    return {
        "new_decoder_architecture": new,
        "multi_query": K == 1,
        "parallel_attn": spec.parallel,
        "num_ln_in_parallel_attn": 1 if spec.norm.shared else 2,
    }


def _latent(spec: ModelSpec) -> dict[str, Any]:
    attention = spec.attention
    return {
        "q_lora_rank": attention.query_rank or None,
        "kv_lora_rank": attention.key_value_rank,
        "qk_rope_head_dim": attention.rotary_head_size,
        "qk_nope_head_dim": attention.plain_head_size,
        "v_head_dim": attention.value_head_size,
    }


def _whole(value: float | str) -> float | int | str:
    """A number without its rounding error, as a whole number where it is one."""
    if isinstance(value, str):
        return value
    return round(value) if abs(value - round(value)) < 1e-9 * max(1.0, abs(value)) else value


def _essence(spec: ModelSpec) -> ModelSpec:
    """The model with everything that changes no number of a forward pass in one form."""
    attention, moe = spec.attention, spec.moe
    windows = tuple(spec.layer(index).window for index in range(spec.num_layers))
    latent = attention.kind == "latent"
    scale = spec.head_size**-0.5 if attention.scale is None else attention.scale
    all_experts = moe is not None and moe.num_leading_dense_layers == 0 and moe.every == 1
    local = spec.position.local_theta if any(windows) else None
    return replace(
        spec,
        name="",
        source="",
        notes=(),
        dropout=0.0,
        num_prediction_layers=0,
        attention=replace(
            attention,
            num_key_value_heads=None if latent else spec.num_key_value_heads,
            head_size=None if latent else spec.head_size,
            window_pattern=windows if any(windows) else (),
            scale=float(f"{scale:.10g}"),
            dropout=0.0,
        ),
        mlp=replace(spec.mlp, intermediate_size=0) if all_experts else spec.mlp,
        norm=replace(spec.norm, bias=spec.norm.bias and spec.norm.affine and spec.norm.kind == "layer"),
        position=replace(
            spec.position,
            num_learned=spec.num_position_rows or None,
            local_theta=None if local == spec.position.theta else local,
            rotary_fraction=spec.rotary_size / spec.head_size,
        ),
        moe=None if moe is None else replace(moe, capacity_factor=0.0),
    )


def differences(ours: ModelSpec, theirs: ModelSpec) -> list[str]:
    """Dotted names of the fields in which two models would compute something else from the same weights.

    How long a sequence may be, dropout, and what else training alone has are none of them.
    """
    return _differing(*(replace(_essence(each), max_sequence_length=0) for each in (ours, theirs)))


def _differing(wanted: ModelSpec, read: ModelSpec) -> list[str]:
    found = []
    for name in ModelSpec.__dataclass_fields__:
        ours, theirs = getattr(wanted, name), getattr(read, name)
        if ours == theirs:
            continue
        inner = getattr(ours, "__dataclass_fields__", {})
        parts = [
            f"{name}.{part}" for part in inner if theirs is not None and getattr(ours, part) != getattr(theirs, part)
        ]
        found += parts or [name]
    return found


def _left_out(spec: ModelSpec) -> tuple[str, ...]:
    notes = []
    if spec.num_prediction_layers:
        notes.append(
            f"{spec.num_prediction_layers} layer(s) for multi-token prediction are left out, as transformers has none"
        )
    if spec.moe is not None and spec.moe.capacity_factor:
        notes.append(
            f"the experts' capacity factor {spec.moe.capacity_factor:g} is left out: there no token is dropped"
        )
    return tuple(notes)


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("written.toml").read_text("utf-8"))
