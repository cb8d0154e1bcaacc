import random
from itertools import product

import numpy as np
import torch

from torchledger.trainer.seeds import STREAMS, OwnDraws, dropout_seed, seed_step, step_seeds, stream_seed


def test_streams_and_counters_never_share_a_seed():
    """Every stream at every counter under every seed has a number of its own, and torch takes it."""
    seeds = [stream_seed(s, name, n) for s, name, n in product(range(3), STREAMS, range(50))]
    assert len(set(seeds)) == len(seeds) == 3 * len(STREAMS) * 50
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_seed_is_the_same_on_every_machine():
    """The function is fixed: its numbers are part of what makes a run repeat."""
    assert stream_seed(1337, "dropout", 0) == 4963859385599918642


def drawn():
    """A number of every global generator."""
    return torch.rand(1).item(), np.random.rand(), random.random()  # noqa: NPY002  # the global one is meant


def test_all_generators_are_seeded_at_once():
    """A step gives the same numbers of torch, NumPy and Python, whatever was drawn before; another gives others."""
    seed_step(1337, 7)
    first = drawn()
    drawn()
    seed_step(1337, 8)
    other = drawn()
    seed_step(1337, 7)
    assert drawn() == first
    assert all(a != b for a, b in zip(first, other, strict=True))


def test_torch_is_seeded_as_by_its_own_function():
    """The quick way gives the numbers of `torch.manual_seed` with the seed of the dropout stream."""
    seed_step(1337, 3)
    ours = torch.rand(4)
    torch.manual_seed(dropout_seed(1337, 3))
    assert torch.equal(ours, torch.rand(4))


def test_ranks_have_numbers_of_their_own():
    """No generator of two ranks or steps has the same seed, and all fit their generator."""
    seeds = [tuple(step_seeds(1337, step, rank).values()) for step, rank in product(range(20), range(3))]
    assert len(set(seeds)) == 60
    assert all(seed[1] < 2**32 for seed in seeds)


def test_own_draws_differ_by_rank_and_leave_all_ranks_alike():
    """Within, each rank draws its own numbers; afterwards all draw the same, and others than without."""

    def drawn(rank):
        torch.manual_seed(5)
        with OwnDraws(rank).of(torch.ones(1)):
            own = torch.rand(4)
        return own, torch.rand(4)

    (first, after), (second, after_second) = drawn(0), drawn(1)
    assert not torch.equal(first, second)
    assert torch.equal(after, after_second)
    torch.manual_seed(5)
    assert not torch.equal(torch.rand(4), after)


def test_own_draws_repeat_from_the_state_at_their_entry():
    """Two in a row differ; with the state put back, as recompute does, they are drawn again."""
    draws, found = OwnDraws(3), []
    torch.manual_seed(5)
    state = torch.get_rng_state()
    for number in range(3):
        if number == 2:
            torch.set_rng_state(state)
        with draws.of(torch.ones(1)):
            found.append(torch.rand(4))
    assert not torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_tensors_without_values_draw_nothing():
    """On a meta tensor the generator stays as it is."""
    torch.manual_seed(5)
    state = torch.get_rng_state()
    with OwnDraws(1).of(torch.ones(1, device="meta")):
        pass
    assert torch.equal(torch.get_rng_state(), state)
