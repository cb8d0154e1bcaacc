"""Weights of Hugging Face: the same logits as transformers, both ways."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from torchledger.spec import SpecError
from torchledger.spec.huggingface import from_config
from torchledger.trainer.checkpoint import model_state
from torchledger.trainer.errors import ForeignWeightsError
from torchledger.trainer.foreign_weights import load_foreign, save_foreign
from torchledger.trainer.model import build

STORED = Path(__file__).parent / "huggingface"

SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 32,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
#: Families of GPT's build have 4·hidden_size inside, and their own key for another width.
PLAIN = {key: value for key, value in SIZES.items() if key != "intermediate_size"}
GROUPED = {**SIZES, "num_key_value_heads": 2}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
LATENT = {
    "q_lora_rank": 12,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 6,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 24,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 1.0,
    "num_key_value_heads": 4,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}

#: Each architecture once, with what sets it apart switched on: name -> (model_type, keys).
MODELS = {
    "llama": ("llama", GROUPED),
    "llama-scaled": ("llama", {**GROUPED, "rope_scaling": {**LLAMA3, "original_max_position_embeddings": 8}}),
    "llama-biases-tied": ("llama", {**GROUPED, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "mistral": ("mistral", {**GROUPED, "sliding_window": 5}),
    "qwen2": ("qwen2", GROUPED),
    "qwen2-windows": ("qwen2", {**GROUPED, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    "qwen2-yarn": ("qwen2", {**GROUPED, "rope_scaling": YARN}),
    "qwen3": ("qwen3", {**GROUPED, "head_dim": 12, "tie_word_embeddings": True}),
    "gemma": ("gemma", {**GROUPED, "head_dim": 12}),
    "gemma2": ("gemma2", {**GROUPED, "head_dim": 12, "sliding_window": 5, "query_pre_attn_scalar": 20}),
    "gemma3": (
        "gemma3_text",
        {**GROUPED, "head_dim": 12, "sliding_window": 5, "query_pre_attn_scalar": 20, "num_hidden_layers": 6},
    ),
    "olmo": ("olmo", {**GROUPED, "clip_qkv": 0.3}),
    "olmo2": ("olmo2", GROUPED),
    "phi3": ("phi3", {**GROUPED, "sliding_window": 5}),
    "stablelm": ("stablelm", {**GROUPED, "use_qkv_bias": True}),
    "stablelm-parallel": ("stablelm", {**GROUPED, "use_parallel_residual": True}),
    "starcoder2": ("starcoder2", {**GROUPED, "sliding_window": 5}),
    "gpt2": ("gpt2", PLAIN),
    "gpt2-untied": ("gpt2", {**PLAIN, "tie_word_embeddings": False, "n_inner": 72}),
    "gpt_bigcode": ("gpt_bigcode", PLAIN),
    "gpt_bigcode-heads": ("gpt_bigcode", {**PLAIN, "multi_query": False}),
    "gptj": ("gptj", {**PLAIN, "rotary_dim": 4}),
    "gpt_neox": ("gpt_neox", SIZES),
    "gpt_neox-one-after-the-other": ("gpt_neox", {**SIZES, "use_parallel_residual": False, "rotary_pct": 0.5}),
    "phi": ("phi", GROUPED),
    "opt": ("opt", {**PLAIN, "ffn_dim": 40, "word_embed_proj_dim": 32}),
    "opt-350m": ("opt", {**PLAIN, "ffn_dim": 40, "word_embed_proj_dim": 16, "do_layer_norm_before": False}),
    "bloom": ("bloom", PLAIN),
    "falcon-7b": ("falcon", PLAIN),
    "falcon-40b": ("falcon", {**PLAIN, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon-plain": ("falcon", {**PLAIN, "multi_query": False, "parallel_attn": False, "bias": True}),
    "mixtral": ("mixtral", {**GROUPED, "num_local_experts": 4}),
    "qwen2_moe": ("qwen2_moe", {**GROUPED, **EXPERTS, "shared_expert_intermediate_size": 20}),
    "qwen3_moe": ("qwen3_moe", {**GROUPED, **EXPERTS, "head_dim": 8, "norm_topk_prob": True}),
    "deepseek_v2": ("deepseek_v2", {**SIZES, **LATENT, "topk_method": "greedy"}),
    "deepseek_v3": ("deepseek_v3", {**SIZES, **LATENT}),
    "deepseek_v3-plain-query": ("deepseek_v3", {**SIZES, **LATENT, "q_lora_rank": None}),
}


def their_model(model_type, keys):
    """A model of transformers with values that let nothing hide: norms not one, biases not zero."""
    transformers = pytest.importorskip("transformers", reason="needs the extra [hf]")
    config = transformers.AutoConfig.for_model(model_type, **keys)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point() and "inv_freq" not in name:
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.15 + (0.9 if "norm" in name else 0.0))
    return model


def ids(num_rows=2, length=13, vocab=61):
    return torch.randint(0, vocab, (num_rows, length), generator=torch.Generator().manual_seed(1))


def our_logits(folder, tokens):
    spec = from_config(folder)
    model = build(spec, attention="math").eval()
    load_foreign(folder, spec, model_state(model))
    with torch.no_grad():
        return spec, model, model(tokens)


@pytest.mark.parametrize(("model_type", "keys"), MODELS.values(), ids=MODELS.keys())
def test_logits_are_those_of_transformers(model_type, keys, tmp_path):
    """A model of each architecture saved by transformers gives its logits here within float32 rounding."""
    theirs = their_model(model_type, keys)
    theirs.save_pretrained(tmp_path / "there")
    with torch.no_grad():
        wanted = theirs(ids()).logits
    _, _, logits = our_logits(tmp_path / "there", ids())
    torch.testing.assert_close(logits, wanted, rtol=1e-5, atol=2e-5 * wanted.abs().max().item())


@pytest.mark.parametrize(("model_type", "keys"), MODELS.values(), ids=MODELS.keys())
def test_transformers_reads_what_is_exported(model_type, keys, tmp_path):
    """What is exported is loaded by transformers, none of its tensors missing or unknown, and gives the same logits."""
    theirs = their_model(model_type, keys)
    theirs.save_pretrained(tmp_path / "there")
    spec, model, logits = our_logits(tmp_path / "there", ids())
    save_foreign(tmp_path / "back", spec, model_state(model))
    transformers = pytest.importorskip("transformers")
    again, told = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "back", output_loading_info=True, attn_implementation="eager"
    )
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), told
    with torch.no_grad():
        wanted = again.eval()(ids()).logits
    torch.testing.assert_close(logits, wanted, rtol=1e-5, atol=2e-5 * wanted.abs().max().item())


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_stored_checkpoints_give_the_logits_stored_with_them(name):
    """A checkpoint that transformers wrote, kept with its logits, gives them within rounding, without transformers."""
    wanted = load_file(STORED / name / "logits.safetensors")
    _, _, logits = our_logits(STORED / name, wanted["ids"])
    torch.testing.assert_close(logits, wanted["logits"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_there_and_back_is_the_same_to_the_bit(name, tmp_path):
    """What was read from a checkpoint and written again is its tensors, name by name and bit by bit."""
    spec, model, _ = our_logits(STORED / name, ids())
    save_foreign(tmp_path / "back", spec, model_state(model))
    before, after = load_file(STORED / name / "model.safetensors"), load_file(tmp_path / "back" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    said = from_config(tmp_path / "back", name=spec.name)
    assert (said.attention, said.mlp, said.norm, said.position) == (spec.attention, spec.mlp, spec.norm, spec.position)


def copied(name, tmp_path):
    """A writable copy of a stored checkpoint, and its tensors."""
    folder = tmp_path / name
    folder.mkdir()
    (folder / "config.json").write_text((STORED / name / "config.json").read_text())
    return folder, load_file(STORED / name / "model.safetensors")


def test_shards_are_one_checkpoint(tmp_path):
    """Tensors in two files with an index are read as those of one file."""
    folder, tensors = copied("llama", tmp_path)
    names = sorted(tensors)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, mine in parts.items():
        save_file({name: tensors[name] for name in mine}, folder / file)
    where = {name: file for file, mine in parts.items() for name in mine}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    assert torch.equal(our_logits(folder, ids())[2], our_logits(STORED / "llama", ids())[2])


def test_names_without_their_outermost_module(tmp_path):
    """OpenAI's own GPT-2 files say `h.0.ln_1` for `transformer.h.0.ln_1`, and hold masks that are no parameters."""
    folder, tensors = copied("gpt2", tmp_path)
    old = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    save_file({**old, "h.0.attn.bias": torch.ones(1, 1, 4, 4)}, folder / "model.safetensors")
    assert torch.equal(our_logits(folder, ids())[2], our_logits(STORED / "gpt2", ids())[2])


def test_bf16_weights_become_the_models_format(tmp_path):
    """A bfloat16 checkpoint is read into float32 parameters without a change of value, and exported as asked."""
    folder, tensors = copied("llama", tmp_path)
    narrow = {name: tensor.bfloat16() for name, tensor in tensors.items()}
    save_file(narrow, folder / "model.safetensors")
    spec, model, _ = our_logits(folder, ids())
    assert torch.equal(model.final_norm.weight, narrow["model.norm.weight"].float())
    save_foreign(tmp_path / "back", spec, model_state(model), dtype=torch.bfloat16)
    after = load_file(tmp_path / "back" / "model.safetensors")
    assert all(torch.equal(after[name], narrow[name]) for name in narrow)
    assert json.loads((tmp_path / "back" / "config.json").read_text())["torch_dtype"] == "bfloat16"


def refusal(folder):
    with pytest.raises(ForeignWeightsError) as raised:
        our_logits(folder, ids())
    return str(raised.value)


def test_what_is_missing_or_too_much_is_named(tmp_path):
    """A missing tensor, one of another size and one without a place are errors that name it."""
    folder, tensors = copied("llama", tmp_path)
    rest = {name: tensor for name, tensor in tensors.items() if name != "model.norm.weight"}
    save_file(rest, folder / "model.safetensors")
    assert "lacks model.norm.weight" in refusal(folder)
    save_file({**tensors, "model.norm.weight": torch.ones(31)}, folder / "model.safetensors")
    assert "model.norm.weight: [31] stored, [32] needed" in refusal(folder)
    save_file({**tensors, "model.layers.9.mlp.extra": torch.ones(3)}, folder / "model.safetensors")
    assert "no place for: model.layers.9.mlp.extra" in refusal(folder)


def test_transposed_matrices_are_checked_in_their_own_shape(tmp_path):
    """A GPT-2 matrix stored as [out, in] has as many numbers, but is refused."""
    folder, tensors = copied("gpt2", tmp_path)
    key = "transformer.h.0.mlp.c_fc.weight"
    save_file({**tensors, key: tensors[key].t().contiguous()}, folder / "model.safetensors")
    assert f"{key}: [128, 32] stored, [32, 128] needed" in refusal(folder)


def test_damaged_and_foreign_folders_are_refused(tmp_path):
    """A cut file, a pickle, an index without its file, no config: each says what is wrong, none runs code."""
    folder, tensors = copied("llama", tmp_path)
    (folder / "pytorch_model.bin").write_bytes(b"no matter")
    assert "pytorch_model.bin is a pickle" in refusal(folder)
    save_file(tensors, folder / "model.safetensors")
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    assert "cannot read" in refusal(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "absent.safetensors"}}')
    assert "lacks absent.safetensors" in refusal(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": 3}')
    assert "is damaged" in refusal(folder)
    with pytest.raises(SpecError, match=r"no config\.json"):
        our_logits(tmp_path, ids())


@pytest.mark.parametrize(
    "entry",
    [
        {"scale_attn_by_inverse_layer_idx": True},
        {"quantization_config": {"bits": 4}},
        {"routed_scaling_factor": 2.5},
        {"n_group": 2},
    ],
)
def test_what_would_compute_otherwise_is_refused(entry, tmp_path):
    """Weights whose config scales what this trainer does not scale are refused, not read as another model."""
    folder, tensors = copied("gpt2", tmp_path)
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **entry}))
    assert next(iter(entry)) in refusal(folder)


def test_falcons_own_alibi_is_refused(tmp_path):
    """Falcon's slopes are scaled and rounded otherwise than ALiBi's: its weights are refused, and none are written."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "falcon", "alibi": True, **PLAIN}))
    save_file({"x": torch.ones(1)}, tmp_path / "model.safetensors")
    spec = from_config(tmp_path)
    with pytest.raises(ForeignWeightsError, match="alibi = True is not built here"):
        load_foreign(tmp_path, spec, {})
    with pytest.raises(SpecError, match="no Hugging Face family"):
        save_foreign(tmp_path / "back", spec, {})


def test_a_taken_folder_is_left_alone(tmp_path):
    """Exporting into a folder with something in it is refused, and it stays as it was."""
    spec, model, _ = our_logits(STORED / "llama", ids())
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(ForeignWeightsError, match="not empty"):
        save_foreign(tmp_path, spec, model_state(model))
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]
