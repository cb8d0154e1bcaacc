"""`count config.json --trace`: transformers builds the model, on no memory and without weights."""

import json
import sys

import pytest

pytest.importorskip("torch")

B, T, V, L, D, F, H, G = 2, 16, 128, 2, 32, 64, 4, 2
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": V, "hidden_size": D,
    "intermediate_size": F, "num_hidden_layers": L, "num_attention_heads": H, "num_key_value_heads": G,
    "max_position_embeddings": 64,
}  # fmt: skip
WORDS = ("--trace", "--batch", B, "--sequence", T, "--json")


@pytest.fixture
def config(tmp_path):
    """Write a configuration and give its path."""

    def write(values):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(values))
        return path

    return write


def test_without_transformers_the_message_says_how_to_get_it(ask, config, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    answer = ask("count", config(LLAMA), "--trace")
    assert answer.code == 1
    assert "this needs transformers: pip install 'torchledger[hf]'" in answer.err


def test_llama_by_hand(ask, config):
    """Grouped-query attention and a gated MLP, to the last FLOP; the folder is as good as the file."""
    pytest.importorskip("transformers")
    path = config(LLAMA)
    projections = 2 * D * D + 2 * D * (D * G // H) + 3 * D * F
    forward = 2 * B * T * (L * projections + D * V) + L * 2 * (2 * B * T * T * D)
    for place in (path, path.parent):
        answer = ask("count", place, *WORDS)
        assert answer.code == 0, answer.err
        assert answer.json["answer"]["total_flops"] == 3 * forward
        assert answer.json["answer"]["is_complete"]


@pytest.mark.parametrize(
    "values",
    [
        {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": D, "intermediate_size": F,
         "num_hidden_layers": L, "num_attention_heads": H, "vocab_size": V},
        {"model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": D, "intermediate_size": F,
         "num_hidden_layers": L, "num_attention_heads": H, "image_size": 32, "patch_size": 8},
        {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "vocab_size": V, "d_model": D, "d_ff": F,
         "d_kv": 8, "num_layers": L, "num_heads": H, "decoder_start_token_id": 0},
        {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], **{k: v for k, v in LLAMA.items() if "_" in k
         and k != "model_type"}, "num_local_experts": 4, "num_experts_per_tok": 2},
    ],
    ids=lambda values: values["model_type"],
)  # fmt: skip
def test_other_kinds_of_models(ask, config, values):
    """An encoder, an image model, an encoder and decoder, a mixture: traced, with gradients for what they train."""
    pytest.importorskip("transformers")
    answer = ask("count", config(values), *WORDS)
    assert answer.code == 0, answer.err
    assert answer.json["answer"]["executed_flops_by_purpose"]["weight gradient"] > 0


@pytest.mark.parametrize(
    ("values", "said"),
    [({"model_type": "nothing"}, "cannot read"), ({"hidden_size": 3}, "cannot read")],
)
def test_what_transformers_does_not_know(ask, config, values, said):
    pytest.importorskip("transformers")
    answer = ask("count", config(values), "--trace")
    assert answer.code == 2
    assert said in answer.err
