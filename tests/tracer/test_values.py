"""What shapes alone decide is known without data, and nothing else is."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor

from torchledger.tracer import TraceError, trace_step


class _Answer(Exception):
    """What a step learnt."""


def _asked(question):
    """What a step on no memory learns when it asks."""

    def step():
        raise _Answer(question())

    with pytest.raises(_Answer) as answer:
        trace_step(lambda: step, steps=1)
    return answer.value.args[0]


def _packed_sequences(positions):
    """As transformers asks whether a batch is several sequences end to end: a step other than 1 begins a new one."""
    first = positions[:, :1] - 1
    starts = torch.diff(positions, prepend=first, dim=-1) != 1
    return bool((starts.cumsum(-1)[:, -1] == 0).all())


def test_positions_are_known():
    """Positions 0, 1, 2 ... of every sequence are no packed sequences; 0, 1, 0, 1 are two."""
    assert _asked(lambda: _packed_sequences(torch.arange(4).expand(2, -1))) is True
    assert _asked(lambda: _packed_sequences(torch.arange(4).remainder(2).expand(2, -1))) is False


def test_a_value_written_in_place_is_the_value():
    """What is written to a tensor of known value is known, through every view of it."""

    def question():
        mask = torch.zeros(2, 3, dtype=torch.int64)
        mask[0, 1] += 5
        return int(mask.sum())

    assert _asked(question) == 5


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randint(0, 2, (3,)),
        lambda: torch.rand(3) > 0.5,
        lambda: torch.zeros(3, dtype=torch.int64).random_(0, 2),
        lambda: torch.zeros(3, dtype=torch.int64).copy_(torch.randint(0, 2, (3,))),
        lambda: torch.zeros(1 << 17, dtype=torch.int64),
    ],
    ids=["random", "made of real numbers", "drawn in place", "overwritten", "too large to keep"],
)
def test_what_is_not_known_is_refused(make):
    with pytest.raises(TraceError, match="no data"):
        trace_step(lambda: lambda: bool(make().any()), steps=1)


def test_a_trace_within_a_trace():
    """The inner one puts back what the outer one put in place."""
    before = FakeTensor.numpy
    trace_step(lambda: trace_step(lambda: torch.arange(3).numpy()), steps=1)
    assert FakeTensor.numpy is before
