"""Architectures with a mixture of experts in place of the MLP.

Each function reads what transformers' class of the same name does differently.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from torchledger.spec.huggingface.keys import Keys
from torchledger.spec.huggingface.llama import mistral, qwen3
from torchledger.spec.huggingface.parts import Parts, activation, attention, rotary, windows, windows_by_layer
from torchledger.spec.model import AttentionSpec, MlpSpec, MoeSpec, NormSpec


def mixtral(keys: Keys) -> Parts:
    """Mixtral (arXiv:2401.04088): Mistral with experts in every layer, the chosen weights summing to one."""
    experts = MoeSpec(
        num_experts=keys.size("num_experts"),
        experts_per_token=keys.size("num_experts_per_tok"),
        intermediate_size=keys.size("intermediate_size"),
    )
    return replace(mistral(keys), moe=experts)


def qwen2_moe(keys: Keys) -> Parts:
    """Qwen1.5-MoE and Qwen2-MoE: a shared expert behind a sigmoid gate; windows on even layers if switched on."""
    first = keys.count("max_window_layers")
    layers = range(keys.size("num_hidden_layers"))
    on = keys.flag("use_sliding_window")
    pattern = windows_by_layer(keys, [layer % 2 == 0 and layer < first for layer in layers]) if on else ()
    return Parts(
        attention=attention(keys, bias=keys.flag("qkv_bias"), window_pattern=pattern),
        mlp=MlpSpec(keys.size("intermediate_size"), "gated", activation(keys)),
        norm=NormSpec("rms", epsilon=keys.number("norm_eps")),
        position=rotary(keys),
        moe=replace(
            _qwen_experts(keys),
            shared_intermediate_size=keys.size("shared_expert_intermediate_size"),
            shared_gate=True,
        ),
    )


def qwen3_moe(keys: Keys) -> Parts:
    """Qwen3-MoE: Qwen 3 with experts and no shared one; a window on every layer if switched on."""
    parts = qwen3(keys)
    pattern = windows(keys) if keys.flag("use_sliding_window") else ()
    return replace(parts, attention=replace(parts.attention, window_pattern=pattern), moe=_qwen_experts(keys))


def deepseek_v2(keys: Keys) -> Parts:
    """DeepSeek-V2 (arXiv:2405.04434): latent attention, shared experts, the first layers dense."""
    return _deepseek(keys, _deepseek_experts(keys, "softmax"))


def deepseek_v3(keys: Keys) -> Parts:
    """DeepSeek-V3 (arXiv:2412.19437): sigmoid scores with a bias that balances the load instead of a loss.

    Its modules for predicting further tokens are left out, as transformers leaves them out.
    """
    parts = _deepseek(keys, _deepseek_experts(keys, "sigmoid"))
    further = keys.count("num_nextn_predict_layers")
    notes = (f"{further} module(s) for multi-token prediction are left out",) if further else ()
    return replace(parts, notes=(*parts.notes, *notes))


def _deepseek(keys: Keys, experts: MoeSpec) -> Parts:
    for key in ("attention_bias", "mlp_bias"):
        if keys.flag(key):
            keys.refuse(key, "latent attention with biases cannot be described")
    groups, factor = keys.optional_size("n_group") or 1, keys.optional_number("routed_scaling_factor") or 1.0
    notes = [f"choosing among {groups} groups of experts is left out"] if groups > 1 else []
    notes += [f"the factor {factor:g} on the routed experts' output is left out"] if factor != 1 else []
    position = rotary(keys)
    plain, turned = keys.size("qk_nope_head_dim"), keys.size("qk_rope_head_dim")
    return Parts(
        attention=AttentionSpec(
            num_heads=keys.size("num_attention_heads"),
            kind="latent",
            query_rank=keys.count("q_lora_rank"),
            key_value_rank=keys.size("kv_lora_rank"),
            rotary_head_size=turned,
            plain_head_size=plain,
            value_head_size=keys.size("v_head_dim"),
            scale=_yarn_scale(position.scaling, plain + turned),
        ),
        mlp=MlpSpec(keys.size("intermediate_size"), "gated", activation(keys)),
        norm=NormSpec("rms", epsilon=keys.number("norm_eps")),
        position=position,
        moe=experts,
        notes=tuple(notes),
    )


def _yarn_scale(scaling: Mapping[str, float | str], head_size: int) -> float | None:
    """What scores are multiplied with under YaRN (arXiv:2309.00071 section 3.4), as DeepSeek's own code has it.

    m²/sqrt(head_size) with m = 0.1·mscale_all_dim·ln(factor) + 1. Nothing means without YaRN.
    """
    strength, factor = scaling.get("mscale_all_dim", 0.0), scaling.get("factor", 1.0)
    if scaling.get("kind") != "yarn" or not isinstance(strength, float) or not isinstance(factor, float):
        return None
    if strength == 0 or factor <= 1:
        return None
    m = 0.1 * strength * math.log(factor) + 1
    return m * m / math.sqrt(head_size)


def _qwen_experts(keys: Keys) -> MoeSpec:
    return MoeSpec(
        num_experts=keys.size("num_experts"),
        experts_per_token=keys.size("num_experts_per_tok"),
        intermediate_size=keys.size("moe_intermediate_size"),
        num_leading_dense_layers=_leading(keys),
        every=keys.size("decoder_sparse_step"),
        normalize_weights=keys.flag("norm_topk_prob"),
    )


def _leading(keys: Keys) -> int:
    """How many first layers are dense; `mlp_only_layers` may name others, which a pattern cannot say."""
    dense = keys.items("mlp_only_layers")
    if dense != list(range(len(dense))):
        keys.refuse("mlp_only_layers", f"dense layers other than the first ones cannot be described: {dense}")
        return 0
    return len(dense)


def _deepseek_experts(keys: Keys, scoring: Literal["softmax", "sigmoid"]) -> MoeSpec:
    if (step := keys.optional_size("moe_layer_freq")) not in {None, 1}:
        keys.refuse("moe_layer_freq", f"expected 1, as transformers assumes, got {step}")
    width = keys.size("moe_intermediate_size")
    return MoeSpec(
        num_experts=keys.size("num_experts"),
        experts_per_token=keys.size("num_experts_per_tok"),
        intermediate_size=width,
        shared_intermediate_size=keys.count("n_shared_experts") * width,
        num_leading_dense_layers=keys.count("first_k_dense_replace"),
        router_bias=scoring == "sigmoid",
        scoring=scoring,
        normalize_weights=keys.flag("norm_topk_prob"),
    )
