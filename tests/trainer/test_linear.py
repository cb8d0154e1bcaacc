import torch

from torchledger.trainer.linear import Embedding, Linear


def test_making_them_draws_no_random_numbers():
    """A new module leaves the global random stream where it was."""
    before = torch.get_rng_state()
    Linear(4, 8)
    Embedding(16, 4)
    assert torch.equal(torch.get_rng_state(), before)


def test_they_are_torchs_own():
    """Whatever handles torch's modules handles these."""
    assert isinstance(Linear(4, 8), torch.nn.Linear)
    assert isinstance(Embedding(16, 4), torch.nn.Embedding)
