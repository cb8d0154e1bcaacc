"""What each precision means for weights, activations, products and state."""

from typing import get_args

import pytest

from torchledger.formula import memory, parts
from torchledger.formula.precision import FORMATS
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, Recipe
from torchledger.spec.recipe import Precision

SPEC = ModelSpec("s", 96, 64, 2, 32, AttentionSpec(4), MlpSpec(64))
N = 2 * 96 * 32 + 2 * (4 * 32 * 32 + 3 * 32 * 64 + 2 * 32) + 32


def _recipe(precision):
    return Recipe(batch_size=2, sequence_length=32, precision=precision)


def test_every_precision_of_a_recipe_has_its_formats():
    assert set(FORMATS) == set(get_args(Precision))


@pytest.mark.parametrize(
    ("precision", "parameter", "gradient", "master", "moments"),
    [
        ("fp32", 4, 4, 0, 8),
        ("tf32", 4, 4, 0, 8),
        ("bf16", 4, 4, 0, 8),
        ("fp16", 4, 4, 0, 8),
        ("bf16-master", 2, 2, 4, 8),
        ("fp16-master", 2, 2, 4, 8),
        ("bf16-moments", 2, 2, 0, 8),
        ("bf16-pure", 2, 2, 0, 4),
        ("fp8", 2, 2, 4, 8),
    ],
)
def test_bytes_of_a_parameter(precision, parameter, gradient, master, moments):
    """2 + 2 + 4 + 8 = 16 bytes with a master copy (ZeRO, arXiv:1910.02054, section 3.1)."""
    found = memory(SPEC, _recipe(precision), kernels="cuda")
    assert (found.parameter_bytes, found.gradient_bytes) == (parameter * N, gradient * N)
    assert found.master_bytes == master * N
    steps = 4 * (2 + 1 + 2 * (7 + 2))  # a step count for each of the tensors
    assert found.optimizer_state_bytes == moments * N + steps


def _formats(precision, kernels="flash"):
    layer = parts(SPEC, _recipe(precision), kernels=kernels)[1]
    return {line.number_format for line in layer.lines if line.kind == "matmul"}


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"])
def test_matmuls_of_a_layer_run_in_it(precision):
    assert _formats(precision) == {precision}


def test_a_stream_in_16_bit_has_no_casts_but_those_of_the_rotation():
    """Under autocast every linear layer casts its input; with 16-bit weights nothing does."""

    def casts(precision):
        layer = parts(SPEC, _recipe(precision), kernels="flash")[1]
        return {line.module for line in layer.lines if line.op == "cast" and line.phase == "forward"}

    assert casts("bf16-pure") == {"layers.*.attention"}
    assert "layers.*.mlp.up" in casts("bf16")
    kept = [each for part in parts(SPEC, _recipe("bf16-pure"), kernels="compiled") for each in part.activations]
    assert {each.number_format for each in kept} == {"bf16", "fp32"}


def test_embedding_head_and_attention_are_not_in_fp8():
    embedding, layer, head = parts(SPEC, _recipe("fp8"), kernels="megatron-flash")
    assert {line.number_format for line in head.lines if line.kind == "matmul"} == {"bf16"}
    assert {line.number_format for line in layer.lines if line.kind == "attention"} == {"bf16"}
    assert {line.number_format for line in embedding.lines if line.kind == "embedding"} == {"bf16"}
