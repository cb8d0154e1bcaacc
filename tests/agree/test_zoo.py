"""A full training step of every model in the zoo is traced complete, with its own parameters and derived FLOPs.

The derivation (zoo/derivation.py) counts what the model's own code calls, by hand-written rules of its own; the ledger
counts what torch dispatches. Both know nothing of each other.
"""

import importlib.util
import re

import pytest

pytest.importorskip("transformers")

import torch
from torch.utils._pytree import tree_map
from zoo.derivation import Derivation
from zoo.families import ZOO
from zoo.row import TABLE, row, rows, traced

from torchledger.ledger import CONTRACTIONS, MODEL_FLOPS

FAMILIES = {
    "dense",
    "mixture",
    "state space",
    "recurrent",
    "hybrid",
    "encoder",
    "encoder-decoder",
    "vision",
    "sound",
    "multimodal",
}


#: Slow ones, whose kind others stand for every day; they are under `make proof`.
SLOW = {
    "MobileNetV2", "MobileViT", "LeViT", "EfficientNet", "DPT", "PVT v2", "SegFormer", "PoolFormer", "FocalNet",
    "Speech2Text", "WavLM", "HuBERT", "BLIP", "Marian", "mBART", "Phi-3.5-MoE", "Zamba2",
}  # fmt: skip


STALE = "where only the row differs, docs/zoo.csv is stale: run `make zoo`"


def _derived(zoo_model, model, batch):
    """(forward, backward) FLOPs of the contractions that the model's code calls."""
    with Derivation() as derivation:
        output = model(**batch)
        loss = output.loss if zoo_model.loss is None else zoo_model.loss(output, batch)
    loss.backward()
    return derivation.forward, derivation.backward


def _derived_on_meta(zoo_model, model, batch):
    """The same without data, `None` for a model whose own code does not run so; its tiny size stands for it.

    It asks for a value, or its grouped products are not in bf16, which torch's shape rule alone knows.
    """
    try:
        return _derived(zoo_model, model, tree_map(_on_meta, batch))
    except RuntimeError as refusal:
        if zoo_model.asks_values or re.search("on meta tensors|inputs of BF16", str(refusal)):
            return None
        raise


def _generator():
    spec = importlib.util.spec_from_file_location("generate_zoo", TABLE.parent / "generate_zoo.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _on_meta(thing):
    return thing.to("meta") if isinstance(thing, torch.Tensor) else thing


def _found_and_wanted(zoo_model, size):
    """Of the trace: unknown lines, completeness, parameters, FLOPs of each pass and of both, the table's row."""
    model, batch = zoo_model.build(size), zoo_model.example(size)
    result = traced(zoo_model, model, batch)
    unknown = {line.op for line in result.ledger.unknown_lines if line.work.flops_full is None}
    contractions = result.ledger.where(kind=CONTRACTIONS).under(MODEL_FLOPS)
    by_phase = tuple(contractions.where(phase=phase).flops for phase in ("forward", "backward"))
    derived = _derived(zoo_model, model, batch) if size == "tiny" else _derived_on_meta(zoo_model, model, batch)
    derived = by_phase if derived is None and size != "tiny" else derived
    entry = {name: str(value) for name, value in row(zoo_model, size, result).items()}
    listed = rows().get((entry["model"], entry["size"]), entry)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    found = unknown, result.ledger.is_complete, result.num_parameters, by_phase, contractions.flops, entry
    return found, (set(), True, num_parameters, derived, sum(by_phase), listed)


@pytest.mark.parametrize(
    "zoo_model",
    [
        pytest.param(zoo_model, id=zoo_model.name, marks=[pytest.mark.proof] if zoo_model.name in SLOW else [])
        for zoo_model in ZOO
    ],
)
def test_a_tiny_model_is_traced_complete_with_derived_flops(zoo_model):
    """No unknown line, the model's own parameters, derived matmul FLOPs of both passes, and what docs/zoo.csv says."""
    found, wanted = _found_and_wanted(zoo_model, "tiny")
    assert found == wanted, STALE


@pytest.mark.proof
@pytest.mark.parametrize("zoo_model", ZOO, ids=lambda zoo_model: zoo_model.name)
def test_a_published_size_is_traced_complete_with_derived_flops(zoo_model):
    """The same at the size that was published, on no memory."""
    found, wanted = _found_and_wanted(zoo_model, "published")
    assert found == wanted, STALE


def test_the_zoo_is_wide():
    """At least 60 architectures, each once, of every family."""
    assert len({model.name for model in ZOO}) == len(ZOO) >= 60
    assert len({model.class_in_transformers().config_class.model_type for model in ZOO}) >= 60
    assert {model.family for model in ZOO} == FAMILIES
    assert {model.family for model in ZOO if model.name not in SLOW} == FAMILIES


def test_the_table_lists_the_zoo():
    """docs/zoo.csv has a row for every model at both sizes and no other, and docs/zoo.md is written from it."""
    assert set(rows()) == {(model.name, size) for model in ZOO for size in ("tiny", model.size_name)}
    assert _generator().page() == (TABLE.parent / "zoo.md").read_text(encoding="utf-8")
