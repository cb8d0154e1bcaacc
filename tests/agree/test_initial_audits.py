"""No alarm on what is sound: a small model of every architecture as our trainer draws it, and transformers' own."""

import pytest
import torch
from architectures import BY_NAME

from torchledger.auditor import Subject, audit_init
from torchledger.spec import Recipe
from torchledger.trainer.init import standard_deviations
from torchledger.trainer.step import build_step

SCHEMES = ("fan_in", "xavier", "kaiming", "mup")


@pytest.mark.parametrize("scheme", SCHEMES)
@BY_NAME
def test_what_our_trainer_draws_raises_nothing_and_is_known_by_its_scheme(spec, scheme):
    """Every matrix is within its sampling error of the recipe's scheme, signals keep their size, the loss is ln(V)."""
    step = build_step(spec, Recipe(sequence_length=32, num_tokens=640, initialization=scheme, mup_base_size=16))
    tokens = torch.randint(spec.vocab_size, (2, 33), generator=torch.Generator().manual_seed(0))
    subject = Subject(
        spec.name,
        step.model,
        (tokens[:, :-1], tokens[:, 1:]),
        vocab_size=spec.vocab_size,
        initialization=scheme,
        initial_stds=standard_deviations(step.model, scheme, 16),
    )
    record = audit_init(subject)
    assert record.findings == ()
    assert {row["scheme"] for row in record.tables["matrices"]} == {scheme}


def _transformers(name):
    import transformers

    sizes = {
        "GPT2": {"n_layer": 3, "n_embd": 64, "n_head": 4, "n_positions": 64},
        "Llama": {"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2},
        "Bert": {"num_hidden_layers": 3, "num_attention_heads": 4},
    }
    shared = {} if name == "GPT2" else {"hidden_size": 64, "intermediate_size": 128}
    head = {"GPT2": "GPT2LMHeadModel", "Llama": "LlamaForCausalLM", "Bert": "BertForMaskedLM"}[name]
    config = getattr(transformers, f"{name}Config")(vocab_size=500, **sizes[name], **shared)
    torch.manual_seed(0)
    return getattr(transformers, head)(config).train()


@pytest.mark.parametrize("name", ["GPT2", "Llama", "Bert"])
def test_what_transformers_draws_raises_nothing_and_is_its_initializer_range(name):
    """Every matrix is normal of 0.02; GPT-2's two that write to the stream are of 0.02/sqrt(2·3)."""
    tokens = torch.randint(1, 500, (2, 32), generator=torch.Generator().manual_seed(0))
    model = _transformers(name)
    record = audit_init(Subject(name, model, {"input_ids": tokens, "labels": tokens}, vocab_size=500))
    assert record.findings == ()
    drawn = {row["place"]: row["scheme"] for row in record.tables["matrices"]}
    assert all("initializer_range" in scheme for scheme in drawn.values())
    residual = {place for place, scheme in drawn.items() if "residual" in scheme}
    assert residual == {place for place in drawn if name == "GPT2" and place.endswith("c_proj.weight")}
