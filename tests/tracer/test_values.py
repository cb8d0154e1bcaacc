"""What shapes alone and the user's own whole numbers decide is known in a trace, and nothing else is."""

import queue
import sys
import types

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from torchledger.tracer import TraceError, trace, trace_step


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


def test_rates_between_two_numbers_are_known():
    """Drop rates from 0 to 0.2 over three layers, as models of images have them."""
    assert _asked(lambda: torch.linspace(0, 0.2, 3).tolist()) == pytest.approx([0.0, 0.1, 0.2])


def test_padding_of_known_numbers_is_known():
    """Ones padded to 5 with zeros: padding fills a new tensor, then copies."""
    assert _asked(lambda: nn.functional.pad(torch.ones(3, dtype=torch.int64), (0, 2)).tolist()) == [1, 1, 1, 0, 0]


def test_a_value_written_in_place_is_the_value():
    """What is written to a tensor of known value is known, through every view of it."""

    def question():
        mask = torch.zeros(2, 3, dtype=torch.int64)
        mask[0, 1] += 5
        return int(mask.sum())

    assert _asked(question) == 5


class _Asking(nn.Module):
    """A module that asks its inputs; a scalar to differentiate comes of it."""

    def __init__(self, question):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.question = question

    def forward(self, **inputs):
        self.question(**inputs)
        return self.linear(torch.ones(2)).sum()


def _told(question, **inputs):
    """What a module learns of its inputs, and the trace."""
    answers = queue.SimpleQueue()  # which a trace cannot copy, and so shares
    seen = trace(_Asking(lambda **given: answers.put(question(**given))), inputs, steps=1)
    return answers.get_nowait(), seen


def test_whole_numbers_of_the_batch_are_known():
    """A mask of ones is one; token 7 stands at places 1 and 3; no assumption is needed."""
    answer, seen = _told(
        lambda mask, ids: (bool(mask.all()), (ids == 7).nonzero().flatten().tolist(), torch.equal(ids, ids.clone())),
        mask=torch.ones(2, 3, dtype=torch.int64),
        ids=torch.tensor([3, 7, 5, 7]),
    )
    assert answer == (True, [1, 3], True)
    assert seen.assumptions == ()


def test_numbers_that_are_written_go_to_a_copy_that_views_share():
    """The first half of 1, 2, 3, 4 is zeroed through its view: 7 are left for the step, 10 for the user."""
    tokens = torch.arange(1, 5)

    def question(whole, half):
        half.zero_()
        return int(whole.sum())

    assert _told(question, whole=tokens, half=tokens[:2])[0] == 3 + 4
    assert tokens.tolist() == [1, 2, 3, 4]


def test_what_a_mask_takes_has_as_many_rows_as_the_mask_has_ones():
    """Three of four rows, forward; the gradient has them all."""
    model = nn.Sequential(nn.Linear(2, 5))
    batch = (torch.zeros(4, 2), torch.tensor([True, False, True, True]))

    class Taking(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x, mask):
            return self.model(x[mask]).sum()

    seen = trace(Taking(), batch, steps=1)
    assert seen.ledger.where(phase="forward", kind="matmul").flops == 2 * 3 * 2 * 5


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (lambda x: bool(torch.isfinite(x).all()), True),
        (lambda x: bool(torch.isnan(x).any()), False),
        (lambda x: bool(torch.isinf(x).any()), False),
        (lambda x: bool((x != x).any()), False),  # noqa: PLR0124  # as people write it
    ],
    ids=["isfinite", "isnan", "isinf", "unequal to itself"],
)
def test_numbers_are_taken_to_be_finite(question, answer):
    """It is an assumption, said where somebody asks."""
    told, seen = _told(question, x=torch.full((3,), float("nan")))
    assert told is answer
    assert seen.assumptions == ("every number is finite, where the code asks (which values there are is data)",)


def _overwritten_in_a_list():
    numbers = [torch.zeros(3), torch.zeros(3)]
    torch._foreach_add_(numbers, [torch.rand(3), torch.rand(3)])
    return numbers[0]


def _overwritten_as_out():
    numbers = torch.zeros(3)
    torch.add(torch.rand(3), 1.0, out=numbers)
    return numbers


@pytest.mark.parametrize(
    "make",
    [
        _overwritten_in_a_list,
        _overwritten_as_out,
        lambda: torch.randint(0, 2, (3,)),
        lambda: torch.rand(3) > 0.5,
        lambda: torch.zeros(3, dtype=torch.int64).random_(0, 2),
        lambda: torch.zeros(3, dtype=torch.int64).copy_(torch.randint(0, 2, (3,))),
        lambda: torch.zeros(1 << 21, dtype=torch.int64),
    ],
    ids=[
        "overwritten in a list",
        "overwritten as out=",
        "random",
        "made of real numbers",
        "drawn in place",
        "overwritten",
        "too large to keep",
    ],
)
def test_what_is_not_known_is_refused(make):
    with pytest.raises(TraceError, match="no data"):
        trace_step(lambda: lambda: bool(make().any()), steps=1)


def test_a_trace_within_a_trace():
    """The inner one puts back what the outer one put in place."""
    before = FakeTensor.numpy
    trace_step(lambda: trace_step(lambda: torch.arange(3).numpy()), steps=1)
    assert FakeTensor.numpy is before


@pytest.mark.parametrize("is_imported_before", [True, False])
def test_transformers_asks_about_known_values(monkeypatch, is_imported_before):
    """It takes tensors of known values for real ones while a trace runs, even if it comes in while that runs."""
    module = types.ModuleType("transformers.utils.import_utils")
    module.is_fake_tensor = original = lambda x: isinstance(x, FakeTensor)
    monkeypatch.setitem(sys.modules, module.__name__, module)  # which also takes it away in the end
    if not is_imported_before:
        del sys.modules[module.__name__]

    def question():
        sys.modules[module.__name__] = module
        known, unknown = torch.arange(3), torch.rand(3)
        return module.is_fake_tensor(known), module.is_fake_tensor(unknown)

    assert _asked(question) == (False, True)
    assert module.is_fake_tensor is original
