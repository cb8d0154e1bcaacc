"""The determinism audit raises nothing on models that repeat: families of presets, our own run, transformers."""

import pytest
import torch

from torchledger.auditor import Subject, audit_determinism
from torchledger.cli.audited import subject_of
from torchledger.trainer.prepare import prepare

#: One of each family, with few layers, few words and narrow ones: their operations are the same as with many.
FAMILIES = {
    "gpt2": ("model.hidden_size=192", "model.mlp.intermediate_size=768", "model.max_sequence_length=64"),
    "smollm2-135m": ("model.hidden_size=144", "model.mlp.intermediate_size=384"),
    "stdlib-small": (),
}
LARGE_FAMILIES = (
    "gpt2",
    "smollm2-135m",
    "pythia-70m",
    "opt-125m",
    "qwen3-0.6b",
    "bloom-560m",
    "olmo-2-1b",
    "falcon-rw-1b",
    "phi-1.5",
    "llama-3.2-1b",
    "starcoder2-3b",
)
SMALL = ("model.num_layers=1", "model.vocab_size=512")


RUN = """
data = "DATA"
num_steps = 5
[model]
name = "tiny"
vocab_size = 257
max_sequence_length = 16
num_layers = 2
hidden_size = 16
dropout = 0.1
[model.attention]
num_heads = 2
[model.mlp]
intermediate_size = 32
[recipe]
batch_size = 4
sequence_length = 16
"""


def harms(record):
    return [each for each in record.findings if each.severity != "note"]


def audit_of(preset, precision, steps, *, narrow=()):
    options = {"precision": precision, "sets": SMALL + narrow, "sequence_length": 16}
    return audit_determinism(subject_of(preset, options), steps=steps)


@pytest.mark.parametrize("preset", FAMILIES)
def test_a_preset_repeats_in_bf16(preset):
    """A step of each family is the same bit for bit from its state and made anew, its data after other draws."""
    record = audit_of(preset, "bf16", steps=1, narrow=FAMILIES[preset])
    assert harms(record) == []
    assert all(row["same"] for row in record.tables["repeats"] if row["kind"] != "threads")
    assert all(row["same"] for row in record.tables["data"])


@pytest.mark.proof
@pytest.mark.parametrize("preset", LARGE_FAMILIES)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_large_preset_repeats(preset, precision):
    """As above, of families whose layers are larger, over two steps."""
    assert harms(audit_of(preset, precision, steps=2)) == []


@pytest.mark.parametrize("family", ["gpt2", "llama", "bert"])
def test_a_model_of_transformers_repeats_with_its_dropout_told(family):
    """GPT-2, Llama and BERT with padding and, where they have it, dropout: a note at most."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    made = {
        "gpt2": (transformers.GPT2LMHeadModel, transformers.GPT2Config, {"n_embd": 32, "n_layer": 2, "n_head": 2}),
        "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig, sizes),
        "bert": (transformers.BertForMaskedLM, transformers.BertConfig, sizes),
    }
    build, configure, options = made[family]

    def rebuild(seed):
        torch.manual_seed(seed)
        model = build(configure(vocab_size=100, **options)).train()
        tokens, mask = torch.randint(100, (2, 12)), torch.ones(2, 12, dtype=torch.int64)
        mask[0, 8:] = 0
        batch = {"input_ids": tokens, "labels": tokens.clone(), "attention_mask": mask}
        return Subject(family, model, batch, optimizer=torch.optim.AdamW(model.parameters()), rebuild=rebuild)

    record = audit_determinism(rebuild(1))
    assert harms(record) == []
    assert (record.facts["num_random_operations"] > 0) == (family != "llama")


def test_our_own_trainer_repeats_on_its_own_data(tmp_path):
    """A run's file on prepared text: weights, dropout, order of the data and every operation come again."""
    (tmp_path / "text.txt").write_text("the cat sat on the mat. " * 400, encoding="utf-8")
    data = prepare(tmp_path / "text.txt", tmp_path / "data", tokenizer="bytes", validation_fraction=0.2).folder
    run = tmp_path / "run.toml"
    run.write_text(RUN.replace("DATA", str(data)), encoding="utf-8")
    record = audit_determinism(subject_of(str(run), {"sets": ()}), steps=3)
    assert harms(record) == []
    assert all(row["same"] for row in record.tables["data"])
    assert record.tables["data"][0]["num_batches"] == 3
    assert record.facts["num_random_operations"] > 0
