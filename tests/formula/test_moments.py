"""The moments that can be the peak: what is in each."""

from dataclasses import replace

from torchledger.formula import memory, num_parameters
from torchledger.formula.moments import Moment
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, OptimizerSpec, Recipe

SPEC = ModelSpec("s", 50, 64, 3, 32, AttentionSpec(4, window_pattern=(4, 0)), MlpSpec(16))
RECIPE = Recipe(batch_size=2, sequence_length=8)


def _moments(spec=SPEC, recipe=RECIPE):
    return {moment.name: moment.parts for moment in memory(spec, recipe).moments}


def test_the_total_of_a_moment_is_the_sum_of_its_parts():
    assert Moment("now", {"parameters": 3, "inputs": 4}).total_bytes == 3 + 4


def test_parameters_state_and_inputs_are_alive_in_every_moment():
    for parts in _moments().values():
        assert {"parameters", "buffers", "optimizer state", "inputs"} <= set(parts)


def test_gradients_grow_from_nothing_to_one_a_parameter():
    gradients = {name: parts["gradients"] for name, parts in _moments().items()}
    layer = 4 * 32 * 32 + 3 * 32 * 16 + 2 * 32
    assert gradients["backward of the loss"] == 0
    assert gradients["backward of the head"] == 4 * 50 * 32
    assert gradients["backward of the first layer"] == 4 * (num_parameters(SPEC) - layer - 50 * 32)
    assert gradients["backward of the embedding"] == gradients["optimizer step"] == 4 * num_parameters(SPEC)


def test_with_accumulation_they_are_there_from_the_second_micro_batch_on():
    parts = _moments(recipe=replace(RECIPE, accumulation_steps=2))
    assert parts["backward of the loss"]["gradients"] == 4 * num_parameters(SPEC)
    assert parts["backward of the head"]["gradients"] == 4 * (num_parameters(SPEC) + 50 * 32)


def test_the_first_layer_has_its_own_activations_only():
    """Two kinds of layers, one with a window: the first one's list ends where the other's begins."""
    with_two, with_one = _moments(), _moments(replace(SPEC, attention=AttentionSpec(4)))
    mask = 4 * 8 * 8  # of the window, counted where it is made
    first = "backward of the first layer"
    assert with_two[first]["activations"] == with_one[first]["activations"]
    assert (
        memory(SPEC, RECIPE).activation_bytes
        == memory(replace(SPEC, attention=AttentionSpec(4)), RECIPE).activation_bytes + mask
    )


def test_sgd_over_lists_holds_no_temporaries():
    recipe = replace(RECIPE, optimizer=OptimizerSpec(kind="sgd", implementation="foreach"))
    assert _moments(recipe=recipe)["optimizer step"]["temporaries: optimizer"] == 0
