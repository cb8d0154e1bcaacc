import torch

from torchledger.spec import Recipe
from torchledger.trainer.trial import Trial, one_layer

RECIPE = Recipe(batch_size=4, sequence_length=16, accumulation_steps=2)


def test_one_layer_keeps_the_window_of_the_first_dense_one(any_spec):
    """One layer without experts, whatever the model is, of equal width and window."""
    layer = one_layer(any_spec)
    first = next((i for i in range(any_spec.num_layers) if not any_spec.layer(i).is_moe), 0)
    assert (layer.num_layers, layer.hidden_size, layer.moe) == (1, any_spec.hidden_size, None)
    assert layer.layer(0).window == any_spec.layer(first).window


def test_a_trial_leaves_no_gradient(tiny):
    """A run is forward and backward, and what it made is gone afterwards, so that runs in turn take equal memory."""
    trial = Trial.of(tiny, RECIPE, torch.device("cpu"))
    assert trial.run() > 0
    assert all(parameter.grad is None for parameter in trial.model.parameters())
