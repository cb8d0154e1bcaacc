from itertools import product

from torchledger.trainer.seeds import STREAMS, stream_seed


def test_streams_and_counters_never_share_a_seed():
    """Every stream at every counter under every seed has a number of its own, and torch takes it."""
    seeds = [stream_seed(s, name, n) for s, name, n in product(range(3), STREAMS, range(50))]
    assert len(set(seeds)) == len(seeds) == 3 * len(STREAMS) * 50
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_seed_is_the_same_on_every_machine():
    """The function is fixed: its numbers are part of what makes a run repeat."""
    assert stream_seed(1337, "dropout", 0) == 4963859385599918642
