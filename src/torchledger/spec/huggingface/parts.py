"""What several architectures read from their `config.json` in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torchledger.spec.huggingface.keys import Keys
from torchledger.spec.model import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, NormSpec, PositionSpec

Activation = Literal["silu", "gelu", "gelu_tanh", "relu", "relu_squared"]

#: transformers' names of activations (its `ACT2CLS`) in our words.
_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu_squared",
}
_DROPOUTS = (
    "attention_dropout",
    "attn_pdrop",
    "resid_pdrop",
    "embd_pdrop",
    "hidden_dropout",
    "dropout",
    "residual_dropout",
    "embedding_dropout",
    "layerdrop",
)


@dataclass(frozen=True, slots=True)
class Parts:
    """What makes one architecture differ from another; sizes that all have are read by `assemble`."""

    attention: AttentionSpec
    mlp: MlpSpec
    norm: NormSpec
    position: PositionSpec
    moe: MoeSpec | None = None
    parallel: bool = False
    head_bias: bool = False
    embedding_norm: bool = False
    embedding_scale: bool = False
    embedding_size: int | None = None
    final_logit_soft_cap: float | None = None
    notes: tuple[str, ...] = ()


def assemble(keys: Keys, parts: Parts) -> ModelSpec:
    """The whole model, still without a name, from its parts and the sizes that every architecture has."""
    dropouts = [f"{key} {rate:g}" for key in _DROPOUTS if (rate := keys.optional_number(key))]
    left_out = (f"dropout ({', '.join(dropouts)}) is left out",) if dropouts else ()
    return ModelSpec(
        name="",
        vocab_size=keys.size("vocab_size"),
        max_sequence_length=keys.size("max_position_embeddings"),
        num_layers=keys.size("num_hidden_layers"),
        hidden_size=keys.size("hidden_size"),
        attention=parts.attention,
        mlp=parts.mlp,
        norm=parts.norm,
        position=parts.position,
        moe=parts.moe,
        parallel=parts.parallel,
        tied_embeddings=keys.flag("tie_word_embeddings"),
        head_bias=parts.head_bias,
        embedding_norm=parts.embedding_norm,
        embedding_scale=parts.embedding_scale,
        embedding_size=parts.embedding_size,
        final_logit_soft_cap=parts.final_logit_soft_cap,
        notes=(*parts.notes, *left_out, *keys.assumed),
    )


def attention(keys: Keys, *, bias: bool = False, output_bias: bool = False, **other: Any) -> AttentionSpec:
    """Standard attention with the heads that the config says.

    What follows from the other sizes is left to follow, so that a config that says it and one that does not give equal
    models.

    Args:
        keys: the config.
        bias: biases of query, key and value.
        output_bias: bias of the output projection.
        other: further fields of `AttentionSpec`, stronger than what the config says.
    """
    num_heads = keys.size("num_attention_heads")
    narrow = keys.optional_size("num_key_value_heads")
    head = keys.optional_size("head_dim")
    fields = {
        "num_heads": num_heads,
        "num_key_value_heads": None if narrow == num_heads else narrow,
        "head_size": None if head is None or head * num_heads == keys.size("hidden_size") else head,
        **{f"{name}_bias": bias for name in ("query", "key", "value")},
        "output_bias": output_bias,
    }
    return AttentionSpec(**{**fields, **other})


def head_size(keys: Keys) -> int:
    """Width of one head, said or following from the other sizes."""
    return keys.optional_size("head_dim") or keys.size("hidden_size") // keys.size("num_attention_heads")


def activation(keys: Keys, key: str = "hidden_act") -> Activation:
    """The MLP's activation."""
    name = keys.text(key)
    if name not in _ACTIVATIONS:
        keys.refuse(key, f"{name!r} is not an activation that can be described; known: {', '.join(_ACTIVATIONS)}")
        return "silu"
    return _ACTIVATIONS[name]


def rotary(keys: Keys, *, local: bool = False) -> PositionSpec:
    """Rotary positions, from the old keys (`rope_theta`, `rope_scaling`) or transformers 5's `rope_parameters`.

    Args:
        keys: the config.
        local: layers with a window have a base of their own (Gemma 3).
    """
    said = keys.table("rope_parameters")
    whole = _object(said, "full_attention") or said
    extra = keys.table("rope_scaling") or whole
    near = _object(said, "sliding_attention")
    theta = keys.within("rope_parameters", whole).optional_number("rope_theta")
    fraction = keys.within("rope_parameters", whole).optional_number("partial_rotary_factor")
    local_theta = keys.within("rope_parameters", near).optional_number("rope_theta")
    if fraction is None:
        fraction = keys.optional_number("partial_rotary_factor")
    if local and local_theta is None:
        local_theta = keys.optional_number("rope_local_base_freq")
    return PositionSpec(
        kind="rotary",
        rotary_fraction=1.0 if fraction is None else fraction,
        theta=keys.number("rope_theta") if theta is None else theta,
        local_theta=local_theta if local else None,
        scaling=_scaling(extra),
    )


def _object(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = values.get(key)
    return inner if isinstance(inner, Mapping) else {}


def _scaling(extra: Mapping[str, Any]) -> dict[str, float | str]:
    """Name and factors of a rotary extension; lists of factors (LongRoPE's) change no size and are left out."""
    kind = extra.get("rope_type", extra.get("type", "default"))
    if kind == "default":
        return {}
    of_position = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
    factors = {
        key: float(value)
        for key, value in extra.items()
        if key not in of_position and isinstance(value, int | float) and not isinstance(value, bool)
    }
    return {"kind": str(kind), **factors}


def windows(keys: Keys) -> tuple[int, ...]:
    """One window for all layers, where there is one."""
    window = keys.optional_size("sliding_window")
    return () if window is None else (window,)


def windows_by_layer(keys: Keys, is_windowed: list[bool]) -> tuple[int, ...]:
    """The shortest pattern of windows that gives every layer its own.

    `layer_types` of the config says which layers have a window, and the architecture's own rule where it is missing.

    Args:
        keys: the config.
        is_windowed: the architecture's own rule, layer by layer.
    """
    kinds = keys.items("layer_types")
    if kinds:
        unknown = sorted({str(kind) for kind in kinds} - {"full_attention", "sliding_attention"})
        if unknown or len(kinds) != len(is_windowed):
            wrong = f"cannot be described: {', '.join(unknown)}" if unknown else f"names {len(kinds)} layers"
            keys.refuse(
                "layer_types", f"{wrong}; {len(is_windowed)} of full_attention and sliding_attention are needed"
            )
        is_windowed = [kind == "sliding_attention" for kind in kinds]
    window = keys.optional_size("sliding_window")
    if window is None or not any(is_windowed):
        return ()
    by_layer = tuple(window if here else 0 for here in is_windowed)
    for period in range(1, len(by_layer)):
        if all(each == by_layer[index % period] for index, each in enumerate(by_layer)):
            return by_layer[:period]
    return by_layer
