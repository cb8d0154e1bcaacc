"""Moments by name: what is in each."""

from dataclasses import replace

from torchledger.formula import memory, num_parameters
from torchledger.formula.moments import Moment, narrowing
from torchledger.formula.parameters import Parameter
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, Recipe

SPEC = ModelSpec("s", 50, 64, 3, 32, AttentionSpec(4, window_pattern=(4, 0)), MlpSpec(16))
RECIPE = Recipe(batch_size=2, sequence_length=8)


def _moments(spec=SPEC, recipe=RECIPE, kernels="cpu"):
    return {moment.name: moment.parts for moment in memory(spec, recipe, kernels=kernels).moments}


def test_the_total_of_a_moment_is_the_sum_of_its_parts():
    assert Moment("now", {"parameters": 3, "inputs": 4}).total_bytes == 3 + 4


def test_parameters_state_and_inputs_are_alive_in_every_moment_of_a_step():
    """Before the first there are parameters and buffers alone, and on a CPU what drawing their values holds."""
    for kernels in ("cpu", "cuda"):
        for name, parts in _moments(kernels=kernels).items():
            held = {"temporaries"} if name.startswith("drawing") else {"optimizer state", "inputs"}
            assert {"parameters", "buffers", *held} <= set(parts)


def test_gradients_of_a_tied_matrix_are_added_to_a_third():
    """V·D numbers in the gradients' format, twice beside the sum: 4 bytes each in FP32, 2 in BF16 parameters."""
    tied, matrix = replace(SPEC, tied_embeddings=True), 50 * 32
    for precision, size in (("fp32", 4), ("bf16-pure", 2)):
        parts = _moments(tied, replace(RECIPE, precision=precision), "cuda")["sum of the tied gradients"]
        assert parts["temporaries: embedding"] == 2 * size * matrix
        assert parts["gradients"] == size * num_parameters(tied)


def test_under_autocast_or_untied_nothing_is_added_to_a_third():
    """What autocast cast back takes the embedding's gradient in place; two matrices have nothing to add."""
    tied = replace(SPEC, tied_embeddings=True)
    for spec, precision in ((SPEC, "fp32"), (SPEC, "bf16-pure"), (tied, "bf16")):
        assert "sum of the tied gradients" not in _moments(spec, replace(RECIPE, precision=precision), "cuda")


def test_rounding_a_model_is_a_moment_where_no_copy_stays():
    """FP32 values go one by one, so that with BF16 parameters alone the making can be the fullest moment."""
    names = {p: set(_moments(recipe=replace(RECIPE, precision=p))) for p in ("fp32", "bf16-pure", "bf16-master")}
    assert [p for p, found in names.items() if "making of the model" in found] == ["bf16-pure"]


def test_with_a_master_copy_the_values_of_frozen_parts_go():
    """Head 10·10 trained, table 100·10 frozen: both rounded, 2·1100, beside all FP32 values, 4·1100."""
    own = (Parameter("head.weight", (10, 10)), Parameter("embedding.weight", (100, 10), frozen=True))
    (moment,) = narrowing(own, 0, "bf16-master")
    assert moment.total_bytes == 2 * 1100 + 4 * 1100
    assert narrowing(own[:1], 0, "bf16-master") == ()
