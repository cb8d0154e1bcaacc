from dataclasses import replace

import pytest

from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, NormSpec, PositionSpec, SpecError, presets
from torchledger.spec.huggingface import from_config, to_config

LLAMA = ModelSpec("small", 120, 64, 4, 48, AttentionSpec(6, 2), MlpSpec(80))


def test_a_llama_is_written_in_transformers_own_names():
    """Sizes stand under the names that LlamaConfig has, and reading the config gives the model again."""
    config, notes = to_config(LLAMA)
    assert (config["model_type"], config["architectures"]) == ("llama", ["LlamaForCausalLM"])
    assert (config["hidden_size"], config["num_key_value_heads"], config["rms_norm_eps"]) == (48, 2, 1e-5)
    assert notes == ()
    read = from_config(config, name="small")
    assert replace(read, source="", attention=replace(read.attention, head_size=None)) == LLAMA


#: Models of nobody's family: a plain MLP behind RMSNorm; ALiBi scaled as Falcon has it.
NOBODYS = {"stdlib-small", "palm-540b", "falcon-rw-1b"}


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_is_written_as_its_family(name):
    """What a preset's config says reads back as the same parameters, head for head; three are nobody's family."""
    spec = presets.get(name)
    if name in NOBODYS:
        with pytest.raises(SpecError, match="no Hugging Face family describes this model"):
            to_config(spec)
        return
    read = from_config(to_config(spec)[0])
    for field in ("vocab_size", "num_layers", "hidden_size", "tied_embeddings", "parallel", "embedding_size", "moe"):
        assert getattr(read, field) == getattr(spec, field)
    assert read.norm == spec.norm
    windows = [[model.layer(i).window for i in range(model.num_layers)] for model in (read, spec)]
    assert windows[0] == windows[1]


def test_a_rotary_extension_is_written_with_its_name():
    """`position.scaling` becomes `rope_scaling` with its `rope_type`, whole numbers whole."""
    scaling = {"kind": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192.0, "low_freq_factor": 1.0}
    config, _ = to_config(replace(LLAMA, position=PositionSpec(theta=5e5, scaling=scaling)))
    said = config["rope_scaling"]
    assert (said["rope_type"], said["factor"], said["original_max_position_embeddings"]) == ("llama3", 8.0, 8192)
    assert isinstance(said["original_max_position_embeddings"], int)
    assert from_config(config).position.scaling == scaling


def test_what_a_family_would_lose_is_named():
    """A model that no family has is refused, and the nearest family's loss is named."""
    with pytest.raises(SpecError, match=r"llama, the nearest, would not say norm\.placement"):
        to_config(replace(LLAMA, norm=NormSpec(placement="sandwich", bias=False)))


def test_dropout_is_written_though_no_reader_takes_it():
    """Dropout changes no forward pass, so it does not decide the family; the config tells it."""
    config, _ = to_config(replace(LLAMA, attention=AttentionSpec(6, 2, dropout=0.1)))
    assert (config["model_type"], config["attention_dropout"]) == ("llama", 0.1)


def test_what_training_alone_has_is_told_as_left_out():
    """Prediction layers and a capacity factor are no part of transformers' model, and the notes say so."""
    moe = MoeSpec(4, 2, 80, capacity_factor=1.25)
    config, notes = to_config(replace(LLAMA, moe=moe, num_prediction_layers=1))
    assert config["model_type"] == "mixtral"
    assert config["intermediate_size"] == 80
    assert len(notes) == 2
