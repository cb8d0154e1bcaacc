"""Selective recompute by operation: what torchtitan's checkpoint keeps of a Llama layer, by hand."""

from dataclasses import replace

from torchledger.formula import KERNELS, parts
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, Recipe

LLAMA = ModelSpec("llama", 1024, 512, 2, 256, AttentionSpec(8, num_key_value_heads=2), MlpSpec(896))
BY_OPERATION = replace(KERNELS["flash"], selective="operations")


def layer(recompute, kernels=BY_OPERATION):
    recipe = Recipe(batch_size=2, sequence_length=64, precision="bf16-master", recompute=recompute)
    (found,) = (each for each in parts(LLAMA, recipe, kernels=kernels) if each.kind == "layer")
    return found


def test_every_other_matmul_and_attention_are_kept():
    """Of query, key, value, output, gate, up and down the odd ones are kept, attention's result and its log-sum-exp."""
    tokens, width, heads, shared, inner = 2 * 64, 256, 8, 256 // 4, 896
    results = width + shared + inner + width  # query, value, gate, down
    kept = 2 * tokens * (width + results + width) + 4 * tokens * heads  # the layer's input, attention, log-sum-exp
    assert layer("selective").kept_bytes == kept


def test_what_is_kept_is_not_made_again():
    """Kept and made again together are what no recompute keeps, and the kept results on top."""
    found, full = layer("selective"), layer("full")
    assert {each.name for each in found.activations}.isdisjoint(each.name for each in found.recomputed)
    assert found.kept_bytes > full.kept_bytes
    assert found.recomputed_bytes < full.recomputed_bytes


def test_kept_matmuls_run_once():
    """Three of seven matmuls and no attention run again: key, output, up."""
    again = [line for line in layer("selective").lines if line.phase == "recompute" and line.kind == "matmul"]
    tokens = 2 * 64
    assert sum(line.work.flops_full for line in again) == 2 * tokens * 256 * (64 + 256 + 896)
    assert [line for line in layer("selective").lines if line.phase == "recompute" and line.kind == "attention"] == []


def test_other_sets_run_the_core_of_attention_again():
    """Elsewhere selective recompute is arXiv:2205.05198's: the core of attention runs again and nothing else does."""
    again = [line for line in layer("selective", KERNELS["flash"]).lines if line.phase == "recompute"]
    assert {line.module for line in again} == {"layers.*.attention.core"}
