import json

import pytest

from torchledger.spec import AttentionSpec, MlpSpec, NormSpec, PositionSpec, SpecError, check
from torchledger.spec.huggingface import from_config, known_model_types
from torchledger.spec.huggingface.read import _READERS

LLAMA = {
    "model_type": "llama",
    "vocab_size": 120,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
}


def refusal(config):
    with pytest.raises(SpecError) as raised:
        from_config(config)
    return str(raised.value)


def test_a_llama():
    """The keys of a Llama land in their fields."""
    spec = from_config({**LLAMA, "rope_theta": 500000.0}, name="small")
    assert (spec.name, spec.vocab_size, spec.max_sequence_length, spec.num_layers) == ("small", 120, 64, 4)
    assert spec.attention == AttentionSpec(6, 2)
    assert spec.mlp == MlpSpec(80, "gated", "silu")
    assert spec.norm == NormSpec("rms", epsilon=1e-5)
    assert spec.position == PositionSpec(theta=500000.0)
    assert spec.notes == ()


def test_every_known_type_is_read_and_described():
    """Every model_type with defaults has a reader, and its defaults alone give a model that can be."""
    assert {*_READERS, "gemma3"} == set(known_model_types())
    for model_type in _READERS:
        needed = {"num_experts_per_tok": 2} if model_type == "deepseek_v2" else {}
        check.require(from_config({"model_type": model_type, **needed}))


def test_a_size_taken_for_a_default_is_told():
    """A missing size is transformers' default, and the answer says so, with the key that may have been meant."""
    config = {key: value for key, value in LLAMA.items() if key != "num_hidden_layers"}
    spec = from_config({**config, "num_hiden_layers": 4})
    assert spec.num_layers == 32
    told = "num_hidden_layers is not in the config and was taken for transformers' default, 32"
    assert spec.notes == (f"{told} (is 'num_hiden_layers' meant for it?)",)


def test_a_null_is_not_a_default():
    """Mistral's window is 4096 where the key is missing, and none where it is null."""
    mistral = {**LLAMA, "model_type": "mistral"}
    assert from_config(mistral).attention.window_pattern == (4096,)
    assert from_config({**mistral, "sliding_window": None}).attention.window_pattern == ()


def test_old_and_new_names_of_rotary_keys():
    """`rope_theta` and `rope_scaling` say the same as transformers 5's `rope_parameters`."""
    old = {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}}
    new = {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0}}
    older = {"rope_theta": 5e5, "rope_scaling": {"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}}
    expected = PositionSpec(theta=5e5, scaling={"kind": "llama3", "factor": 8.0, "low_freq_factor": 1.0})
    assert [from_config({**LLAMA, **keys}).position for keys in (old, new, older)] == [expected] * 3


def test_gemma_3_has_its_language_model_inside():
    """A multimodal config is read for its language model; the rest is told as left out."""
    inner = {**LLAMA, "model_type": "gemma3_text", "head_dim": 16, "sliding_window": 8, "sliding_window_pattern": 2}
    spec = from_config({"model_type": "gemma3", "text_config": inner, "vision_config": {"hidden_size": 9}})
    assert spec.attention.window_pattern == (8, 0)
    assert spec.position.local_theta == 10_000
    assert spec.notes == ("the vision part is left out",)


def test_what_a_spec_cannot_say_is_told():
    """Dropout of the config is left out, and the notes say which."""
    spec = from_config({"model_type": "gpt2", "n_embd": 48, "n_head": 6, "n_layer": 2, "attn_pdrop": 0.2})
    assert "dropout (attn_pdrop 0.2, resid_pdrop 0.1, embd_pdrop 0.1) is left out" in spec.notes


def test_yarn_of_deepseek_sharpens_the_scores():
    """Scores are multiplied with m²/sqrt(192), m = 0.1·ln(40) + 1 (arXiv:2309.00071 section 3.4)."""
    yarn = {"type": "yarn", "factor": 40, "mscale_all_dim": 1.0}
    spec = from_config({"model_type": "deepseek_v3", "rope_scaling": yarn})
    assert spec.attention.scale == pytest.approx((0.1 * 3.6888794541139363 + 1) ** 2 / 192**0.5)
    assert from_config({"model_type": "deepseek_v3"}).attention.scale is None


def test_a_file_and_a_folder(tmp_path):
    """A path may be the file or the folder with it; the folder gives the name."""
    folder = tmp_path / "my-llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "other.json").write_text(json.dumps(LLAMA))
    assert from_config(folder).name == "my-llama"
    assert from_config(str(folder / "config.json")).source == str(folder / "config.json")
    assert from_config(tmp_path / "other.json").name == "other"


def test_the_config_may_say_its_name():
    """A bare object is called what it says, or after its type."""
    assert from_config({**LLAMA, "_name_or_path": "me/mine"}).name == "me/mine"
    assert from_config(LLAMA).name == "llama"


def test_every_wrong_value_is_told_at_once():
    """Wrong types and values of one config are one message, under the names that the file uses."""
    message = refusal(
        {**LLAMA, "hidden_size": "48", "num_hidden_layers": 0, "rms_norm_eps": None, "tie_word_embeddings": 1}
    )
    assert message.splitlines() == [
        "config: 4 mistakes",
        "  rms_norm_eps: is null; a number is needed",
        "  num_hidden_layers: expected a whole number of at least 1, got 0",
        "  hidden_size: expected a whole number of at least 1, got '48'",
        "  tie_word_embeddings: expected true or false, got 1",
    ]


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, "`model_type` is missing"),
        ({"model_type": 3}, "`model_type` is missing"),
        ({"model_type": "lama"}, "unknown model_type 'lama'; did you mean 'llama'? known: bloom, "),
        ({"model_type": "t5", "is_encoder_decoder": True}, "is an encoder-decoder"),
        ({"model_type": "llava", "text_config": LLAMA}, "its text_config is a llama: give that object alone"),
        ({"model_type": "gemma3"}, "in `text_config`, which is missing"),
        ({"model_type": "gpt2", "add_cross_attention": True}, "not a decoder-only model"),
        ({**LLAMA, "hidden_act": "mish"}, "'mish' is not an activation that can be described; known: silu, "),
        ({**LLAMA, "hidden_size": 50}, "hidden_size: 50 is not divisible by num_heads 6"),
        ({**LLAMA, "rope_scaling": 3}, "rope_scaling: expected an object, got 3"),
        ({**LLAMA, "model_type": "phi", "qk_layernorm": True}, "qk_layernorm: Phi's LayerNorm"),
        ({**LLAMA, "model_type": "stablelm", "qk_layernorm": True}, "qk_layernorm: StableLM's norm"),
        ({"model_type": "bloom", "apply_residual_connection_post_layernorm": True}, "cannot be described"),
        ({**LLAMA, "model_type": "qwen3_moe", "mlp_only_layers": [2]}, "mlp_only_layers: dense layers other than"),
        ({**LLAMA, "model_type": "gemma2", "layer_types": ["full_attention"]}, "layer_types: names 1 layers; 4 of"),
        ({**LLAMA, "model_type": "gemma2", "layer_types": ["conv"] * 4}, "layer_types: cannot be described: conv"),
        ({"model_type": "deepseek_v2"}, "num_experts_per_tok: is missing"),
        ({"model_type": "deepseek_v3", "moe_layer_freq": 2}, "moe_layer_freq: expected 1"),
        ({"model_type": "deepseek_v3", "attention_bias": True}, "attention_bias: latent attention with biases"),
    ],
)
def test_what_cannot_be_read_is_refused(config, told):
    """Each is one clear message."""
    assert told in refusal(config)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"not json", "not JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"[1, 2]", "a config.json is one JSON object, this is a list"),
        (b"\xff\xfe", "not UTF-8 text"),
        (None, "no such file"),
    ],
)
def test_files_that_are_no_config(tmp_path, content, told):
    """A message names the file and what is wrong with it."""
    path = tmp_path / "config.json"
    if content is not None:
        path.write_bytes(content)
    assert refusal(path).startswith(f"{path}: {told}")


def test_a_folder_without_config(tmp_path):
    """A folder must have a config.json."""
    assert refusal(tmp_path) == f"{tmp_path}: the folder has no config.json"
