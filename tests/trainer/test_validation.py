import pytest
import torch

from torchledger.spec import Recipe
from torchledger.trainer.init import initialize
from torchledger.trainer.model import build
from torchledger.trainer.validation import evaluate


@pytest.fixture
def model(tiny):
    model = build(tiny, attention="math")
    initialize(model, "fan_in", 0)
    return model


def test_each_token_weighs_the_same(model, batch):
    """Batches of three rows and one give the mean over all four rows."""
    tokens, targets = batch
    loss, count = evaluate(model, [(tokens[:3], targets[:3]), (tokens[3:], targets[3:])], Recipe())
    assert loss == pytest.approx(model(*batch).item(), rel=1e-6)
    assert count == 4 * 16


def test_nothing_of_training_is_touched(model, batch):
    """No gradient, no random number, and the model is in training mode again, even after an error."""
    before = torch.get_rng_state()
    evaluate(model, [batch], Recipe())
    with pytest.raises(IndexError):
        evaluate(model, [(batch[0] + 1000, batch[1])], Recipe())
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)
    assert all(p.grad is None for p in model.parameters())


def test_it_stops_when_told(model, batch):
    """Told to stop before the second batch, it has seen the first only."""
    answers = iter([False, True])
    assert evaluate(model, [batch, batch], Recipe(), lambda: next(answers))[1] == 4 * 16
