from dataclasses import replace

import pytest

from torchledger.spec import MoeSpec, SpecError, presets
from torchledger.spec.huggingface import known_model_types, to_config
from torchledger.trainer.checkpoint import model_state
from torchledger.trainer.foreign_names import family_of, pairings
from torchledger.trainer.model import build


def names(spec):
    return model_state(build(spec, attention="math"))


def test_a_name_carries_its_numbers(tiny):
    """Layer and expert numbers go over in the order in which they come."""
    spec = replace(tiny, moe=MoeSpec(4, 2, 16))
    by_ours = {pair.ours: pair.theirs for pair in pairings("mixtral", spec, names(spec))}
    stored = by_ours["layers.1.mlp.experts.3.gate.weight",]
    assert stored == "model.layers.1.block_sparse_moe.experts.3.w1.weight"


def test_fused_tensors_have_their_parts_in_order(tiny):
    """GPT-2 keeps query, key and value in one tensor, in this order, whatever order ours come in."""
    spec = presets.get("gpt2")
    ours = [f"layers.0.attention.{part}.weight" for part in ("value", "query", "key")]
    (pair,) = pairings("gpt2", spec, ours)
    assert pair.theirs == "transformer.h.0.attn.c_attn.weight"
    assert pair.ours == tuple(f"layers.0.attention.{part}.weight" for part in ("query", "key", "value"))


def test_a_tensor_without_a_place_is_named(tiny):
    """A norm on queries is nothing that a Llama has."""
    with pytest.raises(SpecError, match=r"no place for layers\.0\.attention\.query_norm\.weight"):
        pairings("llama", tiny, ["layers.0.attention.query_norm.weight"])


def test_every_family_that_is_read_has_names(tiny):
    """Each model_type whose config is read has a table of names with an embedding in it."""
    for model_type in known_model_types():
        (pair,) = pairings(family_of(model_type, tiny), tiny, ["embedding.weight"])
        assert pair.theirs.endswith("weight")


def test_every_layer_of_every_architecture_has_a_place(any_spec):
    """If a family describes a model, it has a place for every tensor of it, and no two share one."""
    try:
        config, _ = to_config(any_spec)
    except SpecError:
        return  # nobody's family
    ours = names(any_spec)
    pairs = pairings(config["model_type"], any_spec, ours)
    placed = [name for pair in pairs for name in pair.ours]
    assert sorted(placed) == sorted(ours)
