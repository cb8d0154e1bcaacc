"""Dense language models: decoders with causal attention over all or some of the tokens before."""

from __future__ import annotations

from typing import Any

from zoo.batches import tokens
from zoo.model import ZooModel

SMALL: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
GROUPED = {**SMALL, "num_key_value_heads": 2, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2}
HEADS = {**GROUPED, "head_dim": 8}


def _dense(
    name: str, class_name: str, tiny: dict[str, Any], size_name: str, published: dict[str, Any] | str, **more: Any
) -> ZooModel:
    return ZooModel(name, "dense", class_name, tiny, published, size_name, tokens(), **more)


DENSE = [
    _dense("Llama 3", "LlamaForCausalLM", GROUPED, "llama-3-8b", "llama-3-8b"),
    _dense("Mistral", "MistralForCausalLM", {**HEADS, "sliding_window": 8}, "mistral-7b", "mistral-7b"),
    _dense("Qwen2.5", "Qwen2ForCausalLM", GROUPED, "qwen2.5-7b", "qwen2.5-7b"),
    _dense("Qwen3", "Qwen3ForCausalLM", HEADS, "qwen3-8b", "qwen3-8b"),
    _dense("Gemma", "GemmaForCausalLM", HEADS, "gemma-7b", "gemma-7b"),
    _dense(
        "Gemma 2",
        "Gemma2ForCausalLM",
        {**HEADS, "sliding_window": 8, "query_pre_attn_scalar": 8},
        "gemma-2-9b",
        "gemma-2-9b",
        settings={"attn_implementation": "eager"},
        note="soft-capped scores, so attention is written out",
    ),
    _dense(
        "Gemma 3",
        "Gemma3ForCausalLM",
        {**HEADS, "sliding_window": 8, "query_pre_attn_scalar": 8},
        "gemma-3-1b",
        "gemma-3-1b",
    ),
    _dense("OLMo", "OlmoForCausalLM", GROUPED, "olmo-7b", "olmo-7b"),
    _dense("OLMo 2", "Olmo2ForCausalLM", GROUPED, "olmo-2-7b", "olmo-2-7b"),
    _dense("OLMo 3", "Olmo3ForCausalLM", {**GROUPED, "sliding_window": 8}, "olmo-3-7b", {"vocab_size": 100278}),
    _dense("Phi", "PhiForCausalLM", GROUPED, "phi-2", "phi-2"),
    _dense("Phi-3", "Phi3ForCausalLM", GROUPED, "phi-3-mini", "phi-3-mini"),
    _dense(
        "Falcon",
        "FalconForCausalLM",
        {"vocab_size": 128, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_hidden_size": 64},
        "falcon-7b",
        "falcon-7b",
    ),
    _dense(
        "BLOOM",
        "BloomForCausalLM",
        {"vocab_size": 128, "hidden_size": 32, "n_layer": 2, "n_head": 4},
        "bloom-7.1b",
        "bloom-7.1b",
    ),
    _dense(
        "GPT-2",
        "GPT2LMHeadModel",
        {"vocab_size": 128, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
        "gpt2",
        "gpt2",
    ),
    _dense("GPT-NeoX", "GPTNeoXForCausalLM", SMALL, "gpt-neox-20b", "gpt-neox-20b"),
    _dense(
        "GPT-J",
        "GPTJForCausalLM",
        {"vocab_size": 128, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "rotary_dim": 4},
        "gpt-j-6b",
        "gpt-j-6b",
    ),
    _dense(
        "GPT-Neo",
        "GPTNeoForCausalLM",
        {
            "vocab_size": 128,
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "max_position_embeddings": 64,
            "window_size": 8,
        },
        "gpt-neo-1.3b",
        {},
    ),
    _dense(
        "OPT",
        "OPTForCausalLM",
        {**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32, "pad_token_id": 1},
        "opt-6.7b",
        "opt-6.7b",
    ),
    _dense(
        "MPT",
        "MptForCausalLM",
        {"vocab_size": 128, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64, "expansion_ratio": 2},
        "mpt-7b",
        {"d_model": 4096, "n_heads": 32, "n_layers": 32, "vocab_size": 50432},
    ),
    _dense(
        "StarCoder",
        "GPTBigCodeForCausalLM",
        {"vocab_size": 128, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
        "starcoder-15b",
        "starcoder-15b",
    ),
    _dense("StarCoder2", "Starcoder2ForCausalLM", GROUPED, "starcoder2-7b", "starcoder2-7b"),
    _dense("StableLM", "StableLmForCausalLM", GROUPED, "stablelm-3b", "stablelm-3b"),
    _dense("Cohere", "CohereForCausalLM", GROUPED, "command-r-35b", {}),
    _dense(
        "Cohere 2",
        "Cohere2ForCausalLM",
        {**GROUPED, "sliding_window": 8},
        "command-r7b",
        {
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
        },
    ),
    _dense(
        "Granite",
        "GraniteForCausalLM",
        GROUPED,
        "granite-3.1-8b",
        {
            "vocab_size": 49155,
            "hidden_size": 4096,
            "intermediate_size": 12800,
            "num_hidden_layers": 40,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "tie_word_embeddings": True,
        },
    ),
    _dense(
        "Nemotron",
        "NemotronForCausalLM",
        HEADS,
        "minitron-4b",
        {
            "vocab_size": 256000,
            "hidden_size": 3072,
            "intermediate_size": 9216,
            "num_hidden_layers": 32,
            "num_attention_heads": 24,
            "num_key_value_heads": 8,
            "head_dim": 128,
        },
    ),
    _dense(
        "MiniCPM3",
        "MiniCPM3ForCausalLM",
        {
            **GROUPED,
            "num_key_value_heads": 4,
            "q_lora_rank": 16,
            "kv_lora_rank": 8,
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 4,
            "v_head_dim": 8,
        },
        "minicpm3-4b",
        {},
        note="latent attention",
    ),
    _dense(
        "XGLM",
        "XGLMForCausalLM",
        {
            "vocab_size": 128,
            "d_model": 32,
            "ffn_dim": 64,
            "num_layers": 2,
            "attention_heads": 4,
            "max_position_embeddings": 64,
        },
        "xglm-564m",
        {},
    ),
    _dense("GLM-4", "Glm4ForCausalLM", HEADS, "glm-4-9b", {}),
    _dense("SmolLM3", "SmolLM3ForCausalLM", GROUPED, "smollm3-3b", {}),
    _dense(
        "EXAONE 4",
        "Exaone4ForCausalLM",
        {**GROUPED, "sliding_window": 8},
        "exaone-4.0-1.2b",
        {
            "vocab_size": 102400,
            "hidden_size": 2048,
            "intermediate_size": 4096,
            "num_hidden_layers": 30,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "sliding_window": None,
            "layer_types": ["full_attention"] * 30,
            "tie_word_embeddings": True,
        },
    ),
]
