import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from torchledger.spec import AttentionSpec, MlpSpec, SpecError
from torchledger.spec.huggingface import from_config
from torchledger.trainer.checkpoint import model_state
from torchledger.trainer.export_huggingface import export_huggingface, merged_state
from torchledger.trainer.foreign_weights import load_foreign
from torchledger.trainer.model import build
from torchledger.trainer.sample import load_model


def ids():
    return torch.randint(0, 257, (2, 12), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("adapted", [False, True])
def test_a_trained_run_goes_out_and_comes_back(run, config, adapted, tmp_path):
    """The exported folder gives the run's own logits when it is read again, adapters within it."""
    recipe = replace(config.recipe, lora_rank=2 if adapted else 0)
    folder, _ = run(replace(config, recipe=recipe, sample=replace(config.sample, length=0)))
    exported = export_huggingface(folder.path, tmp_path / "out")
    assert (exported.step, exported.model_type) == (8, "llama")
    assert exported.notes == ("ids are bytes, for which transformers has no tokenizer: none is in the folder",)
    before, _ = load_model(folder.path, torch.device("cpu"))
    spec = from_config(tmp_path / "out")
    after = build(spec, attention="math").eval()
    load_foreign(tmp_path / "out", spec, model_state(after))
    with torch.no_grad():
        torch.testing.assert_close(after(ids()), before(ids()), rtol=1e-5, atol=1e-5)


def test_transformers_gives_the_runs_logits(run, config, tmp_path):
    """The extra `hf` loads the exported folder and gives the logits of the run."""
    transformers = pytest.importorskip("transformers", reason="needs the extra [hf]")
    folder, _ = run(config)
    export_huggingface(folder.path, tmp_path / "out")
    ours, _ = load_model(folder.path, torch.device("cpu"))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids()).logits, ours(ids()), rtol=1e-4, atol=1e-5)


def test_weights_are_rounded_as_asked(run, config, tmp_path):
    """bf16: every tensor in it, and the config says so; the end-of-text id is that of the run's tokenizer."""
    folder, _ = run(config)
    export_huggingface(folder.path, tmp_path / "out", "bf16")
    assert {tensor.dtype for tensor in load_file(tmp_path / "out" / "model.safetensors").values()} == {torch.bfloat16}
    said = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (said["torch_dtype"], said["eos_token_id"]) == ("bfloat16", 256)


def test_nobodys_model_is_refused_by_its_fields(run, config, tmp_path):
    """A plain MLP behind RMSNorm is no family's: the message names what would be lost, and nothing is written."""
    model = replace(config.model, mlp=MlpSpec(48, "plain", "relu_squared"))
    folder, _ = run(replace(config, model=model))
    with pytest.raises(SpecError, match=r"mlp\.kind"):
        export_huggingface(folder.path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_adapters_are_added_to_their_matrix(tiny):
    """W + (16/r)·B A: with A and B all ones, rank 2 and α 16, each number of W grows by 16/2·2 = 16."""
    model = build(replace(tiny, attention=AttentionSpec(4)), attention="math")
    query = model.layers[0].attention.query
    query.adapt(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
    merged = merged_state(model)
    assert (merged["layers.0.attention.query.weight"] == 1 + 16).all()
    assert not any("lora" in name for name in merged)
