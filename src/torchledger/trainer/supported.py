"""Which specs the model is built for: what it would otherwise build wrongly is refused, field by field."""

from torchledger.spec import ModelSpec, SpecError
from torchledger.trainer.position import ROTARY_SCALINGS

__all__ = ["check_supported"]


def check_supported(spec: ModelSpec) -> None:
    """Nothing if the trainer's model implements `spec` as written.

    Raises:
        SpecError: naming every field that stands in the way.
    """
    faults = [text for is_fault, text in (*_block_faults(spec), *_attention_faults(spec)) if is_fault]
    if faults:
        raise SpecError(f"{spec.name} cannot be built: " + "; ".join(faults))


def _block_faults(spec: ModelSpec) -> list[tuple[bool, str]]:
    norm, moe, position = spec.norm, spec.moe, spec.position
    rotated, kind = spec.rotary_size, position.scaling.get("kind")
    return [
        (spec.num_layers < 1, f"num_layers is {spec.num_layers}, it needs at least one"),
        (
            spec.parallel and norm.placement != "pre",
            f"norm.placement {norm.placement!r} with parallel blocks is not defined; they have 'pre'",
        ),
        (
            norm.shared and not spec.parallel,
            "norm.shared needs parallel blocks, here MLP and attention have different inputs",
        ),
        (spec.parallel and moe is not None, "parallel blocks with a mixture of experts (moe) are not built"),
        (
            moe is not None and moe.experts_per_token > moe.num_experts,
            f"moe.experts_per_token is more than moe.num_experts ({0 if moe is None else moe.num_experts})",
        ),
        (
            rotated % 2 == 1,
            f"position.rotary_fraction rotates {rotated} dimensions of a head; they are rotated in pairs",
        ),
        (
            kind is not None and kind not in ROTARY_SCALINGS,
            f"position.scaling kind {kind!r} is not built; there are {', '.join(ROTARY_SCALINGS)}",
        ),
    ]


def _attention_faults(spec: ModelSpec) -> list[tuple[bool, str]]:
    attention, D = spec.attention, spec.hidden_size
    H, K = attention.num_heads, spec.num_key_value_heads
    latent = attention.kind == "latent"
    biased = attention.query_bias or attention.key_bias or attention.value_bias or attention.output_bias
    latent_sizes = (attention.key_value_rank, attention.plain_head_size, attention.value_head_size)
    return [
        (K < 1 or H % max(K, 1) != 0, f"attention.num_heads {H} is no multiple of attention.num_key_value_heads {K}"),
        (
            not latent and attention.head_size is None and D % H != 0,
            f"hidden_size {D} is no multiple of attention.num_heads {H}; set attention.head_size",
        ),
        (
            latent and min(latent_sizes) < 1,
            "attention.kind 'latent' needs attention.key_value_rank, plain_head_size and value_head_size",
        ),
        (latent and attention.query_key_norm != "none", "attention.query_key_norm is not defined for latent attention"),
        (latent and attention.clip is not None, "attention.clip is not defined for latent attention"),
        (
            latent and biased,
            "attention.query_bias, key_bias, value_bias and output_bias are not built for latent attention",
        ),
        (
            latent and (spec.position.kind == "rotary") != (attention.rotary_head_size > 0),
            "latent attention with rotary positions needs attention.rotary_head_size, and without them none",
        ),
        (any(window < 0 for window in attention.window_pattern), "attention.window_pattern has a negative window"),
    ]
