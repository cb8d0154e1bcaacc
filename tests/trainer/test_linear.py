import torch

from torchledger.meter import allocations
from torchledger.trainer.linear import Embedding, Linear


def test_making_them_draws_no_random_numbers():
    """A new module leaves the global random stream where it was."""
    before = torch.get_rng_state()
    Linear(4, 8)
    Embedding(16, 4)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_tied_map_is_the_other_matrix():
    """Its weight is the embedding's own object, its sizes are that one's, and nothing but a bias is allocated."""
    table = Embedding(500, 4)
    seen = allocations(lambda: Linear.tied(table.weight, bias=True))
    head = seen.result
    assert head.weight is table.weight
    assert (head.in_features, head.out_features) == (4, 500)
    assert seen.peak_bytes == seen.end_bytes == 4 * 500
    assert [name for name, _ in head.named_parameters()] == ["weight", "bias"]
    assert head(torch.zeros(2, 4)).shape == (2, 500)
    assert Linear.tied(table.weight, bias=False).bias is None


def test_they_are_torchs_own():
    """Whatever handles torch's modules handles these."""
    assert isinstance(Linear(4, 8), torch.nn.Linear)
    assert isinstance(Embedding(16, 4), torch.nn.Embedding)
