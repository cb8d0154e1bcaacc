"""The precision audit raises nothing on models that train well: families of presets, and transformers' own."""

import pytest
import torch

from torchledger.auditor import Subject, audit_precision
from torchledger.cli.audited import subject_of

#: One of each family that fits: two layers at full width, of a small vocabulary.
FAMILIES = ("smollm2-135m", "pythia-70m", "stdlib-small")
LARGE_FAMILIES = (
    "gpt2", "opt-125m", "qwen3-0.6b", "bloom-560m", "olmo-2-1b", "falcon-rw-1b", "phi-1.5", "llama-3.2-1b",
    "stablelm-3b",
)  # fmt: skip
SMALL = ("model.num_layers=2", "model.vocab_size=1024")


def audit_of(preset, precision):
    return audit_precision(subject_of(preset, {"precision": precision, "sets": SMALL, "sequence_length": 32}))


def complaints(record):
    """What an audit of a sound model does not say: its warnings, a check that fails, advice to give up."""
    found = [each for each in record.findings if each.severity != "note"]
    checks = {row["which"]: row for row in record.tables["checks"]}
    if not checks["as advised"]["holds"]:
        found.append(checks["as advised"])
    if record.facts["advised"] == "FP32 throughout":
        found.append(record.facts["advised"])
    return found


@pytest.mark.parametrize("preset", FAMILIES)
def test_a_preset_as_it_begins_raises_nothing_in_bf16(preset):
    """Weights drawn by the recipe, autocast to BF16: no warning, and the step is as good as FP32's."""
    assert complaints(audit_of(preset, "bf16")) == []


@pytest.mark.proof
@pytest.mark.parametrize("preset", LARGE_FAMILIES)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_large_preset_as_it_begins_raises_nothing(preset, precision):
    """As above, of families whose layers are larger."""
    assert complaints(audit_of(preset, precision)) == []


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", ["gpt2", "llama", "bert"])
def test_a_model_of_transformers_raises_nothing(family, attention, precision):
    """GPT-2, Llama and BERT as transformers draws them, on a batch with padding, attention fused or written out."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    made = {
        "gpt2": (transformers.GPT2LMHeadModel, transformers.GPT2Config, {"n_embd": 64, "n_layer": 2, "n_head": 4}),
        "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig, {**sizes, "num_key_value_heads": 2}),
        "bert": (transformers.BertForMaskedLM, transformers.BertConfig, sizes),
    }
    torch.manual_seed(0)
    build, configure, options = made[family]
    model = build(configure(vocab_size=500, attn_implementation=attention, **options)).train()
    tokens, mask = torch.randint(500, (2, 48)), torch.ones(2, 48, dtype=torch.int64)
    mask[0, 30:] = 0
    batch = {"input_ids": tokens, "labels": tokens.clone(), "attention_mask": mask}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scale = 65536.0 if precision == "fp16" else 1.0
    record = audit_precision(Subject(family, model, batch, optimizer=optimizer, precision=precision, loss_scale=scale))
    assert complaints(record) == []
    assert len(record.tables["logits"]) == 2
