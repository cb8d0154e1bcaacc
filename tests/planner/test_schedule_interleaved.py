import random

import pytest

from torchledger.planner.schedule_cost import ChunkCost
from torchledger.planner.schedule_interleaved import Shape, even_chunks, interleaved_s
from torchledger.planner.schedule_order import micro_batch_group
from torchledger.planner.schedule_recurrence import full_recurrence_s


def chunks(num_stages, num_chunks, draw, embedding=0.1, head=2):
    """Costs of equal chunks of 1 to 4 layers, an embedding of a share of a chunk, and a head of some layers."""
    layers = draw.randint(1, 4)
    sizes = [[float(layers)] * num_chunks for _ in range(num_stages)]
    sizes[0][0] += embedding * layers * draw.random()
    sizes[-1][-1] += head * draw.random()
    backward, weight = draw.uniform(1, 2), draw.uniform(0.5, 1)
    return tuple(tuple(ChunkCost(n, n * backward, n * weight) for n in rank) for rank in sizes), layers


def differences(multiples, send, embedding=0.1, head=2, count=200):
    """Closed form over the recurrence, less one, for drawn steps with sends of up to `send` forward passes."""
    draw = random.Random(1)
    found = []
    while len(found) < count:
        num_stages, num_chunks = draw.randint(2, 8), draw.randint(2, 4)
        if multiples:
            num_micro_batches = num_stages * draw.randint(2, 8)
        else:
            num_micro_batches = draw.randint(2 * num_stages, 6 * num_stages)
        costs, layers = chunks(num_stages, num_chunks, draw, embedding, head)
        send_s = send * layers * draw.random()
        group = micro_batch_group(num_stages, num_micro_batches)
        if num_micro_batches < 2 * group:
            continue
        closed_s = interleaved_s(*even_chunks(costs), Shape(num_stages, num_chunks, num_micro_batches, group), send_s)
        found.append(closed_s / full_recurrence_s("interleaved", costs, num_micro_batches, send_s) - 1)
    return found


@pytest.mark.parametrize("multiples", [True, False])
def test_equal_chunks_are_exact(multiples):
    """Equal chunks, sends of up to a forward pass, micro-batches in groups of the stages or others: no difference."""
    assert max(map(abs, differences(multiples, 1, embedding=0, head=0))) < 1e-12


@pytest.mark.parametrize(
    ("multiples", "embedding", "largest", "mean"),
    [(True, 0.1, 0.017, 0.0003), (False, 0.1, 0.017, 0.0003), (True, 0.2, 0.025, 0.001)],
)
def test_how_far_it_falls_short(multiples, embedding, largest, mean):
    """It is never longer than the step, and shorter by at most, and in the mean, what its docstring says."""
    found = differences(multiples, 1, embedding)
    assert max(found) < 1e-12
    assert -min(found) <= largest
    assert -sum(found) / len(found) <= mean


def test_only_the_way_in_and_out_shows_sends():
    """8 more micro-batches take no longer with sends; the first one in and the last one out pass 2 · (2 · 4 - 1)."""
    costs = ((ChunkCost(1, 1, 1),) * 2,) * 4
    forward, backward = even_chunks(costs)
    without, sends = (interleaved_s(forward, backward, Shape(4, 2, 16, 4), send_s) for send_s in (0, 0.25))
    later = interleaved_s(forward, backward, Shape(4, 2, 24, 4), 0.25)
    assert sends - without == pytest.approx(2 * (2 * 4 - 1) * 0.25)
    assert later - sends == pytest.approx(8 * 2 * (1 + 1 + 1))


def test_uneven_chunks_are_not_taken():
    """A longer chunk in the middle of the model has no closed form; the first and the last chunk may be longer."""
    one, two = ChunkCost(1, 1, 1), ChunkCost(2, 2, 2)
    assert even_chunks(((two, one), (one, one), (one, two)))
    assert even_chunks(((one, one), (two, one), (one, one))) is None
    assert even_chunks(((one, two), (one, one), (one, one))) is None
