import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, Recipe
from torchledger.trainer.init import initialize
from torchledger.trainer.step import build_model
from torchledger.trainer.targets import IGNORED, Shares, count_targets, target_shares


def test_ignored_targets_do_not_count():
    """Of six targets two are ignored: four count."""
    targets = torch.tensor([[1, IGNORED, 2], [0, IGNORED, 3]])
    assert count_targets(targets) == 4


def test_views_count_their_own():
    """A micro-batch is a view of the batch, with strides that are not its own."""
    targets = torch.full((4, 9), IGNORED)
    targets[:, 1::2] = 7
    assert count_targets(targets[1:3, 1:]) == 8  # two rows of four


def test_where_there_are_no_values_all_count():
    """A trace has no values, so it takes every target to count."""
    with FakeTensorMode():
        assert count_targets(torch.zeros(2, 3, dtype=torch.int64)) == 6
    assert count_targets(torch.zeros(2, 3, dtype=torch.int64, device="meta")) == 6


def test_shares_add_up_to_one_and_a_single_batch_is_never_looked_at():
    """Shares are by targets, 3 to 1; a single micro-batch is the whole step; of nothing every share is nothing."""
    parts = [torch.zeros(1, 3, dtype=torch.int64), torch.zeros(1, 1, dtype=torch.int64)]
    assert [each.main for each in target_shares(parts)] == [0.75, 0.25]
    assert target_shares(parts[:1]) == [Shares()]
    assert [each.main for each in target_shares([torch.full((1, 2), IGNORED)] * 2)] == [0.0, 0.0]


def test_each_loss_has_its_own_share():
    """Of four and four tokens 4 and 1 are targets; one further on 3 and none; the tokens are as many in both."""
    parts = [torch.tensor([[1, 2, 3, 4]]), torch.tensor([[1, IGNORED, IGNORED, IGNORED]])]
    first, second = target_shares(parts, num_further=1)
    assert first == Shares(4 / 5, (3 / 3,), 1 / 2)
    assert second == Shares(1 / 5, (0.0,), 1 / 2)
    assert not first.are_equal
    assert all(each.are_equal for each in target_shares([parts[0]] * 3, num_further=2))


def test_on_ranks_whose_gradients_are_averaged_shares_are_so_many_times_larger():
    """Four targets here and twelve on two other ranks: 4/16 of the step, times three ranks in the mean."""
    (mine,) = target_shares([torch.zeros(1, 4, dtype=torch.int64)], added_up=lambda _: [16], num_averaged=3)
    assert mine.main == 3 * 4 / 16


LENGTH, ROWS = 6, 6
TINY = ModelSpec("tiny", 23, 8, 1, 8, AttentionSpec(2), MlpSpec(12))
PLAIN = Recipe(batch_size=ROWS, sequence_length=LENGTH)


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([0, 1, 2]),
    st.sampled_from([0, 4]),
    st.lists(st.integers(0, LENGTH), min_size=ROWS, max_size=ROWS).filter(any),
    st.lists(st.integers(0, ROWS), max_size=3).map(sorted),
    st.sampled_from([1, 2, 3]),
)
def test_however_a_batch_is_cut_over_micro_batches_and_ranks_loss_and_gradient_are_those_of_one(
    further, chunk, counts, cuts, num_ranks
):
    """Equal within the rounding of FP32, a millionth of the gradient, also where a part has no target at all."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, TINY.vocab_size, (ROWS, LENGTH + 1), generator=generator)
    tokens, targets = ids[:, :-1], ids[:, 1:].clone()
    for row, count in enumerate(counts):
        targets[row, count:] = IGNORED
    model = build_model(replace(TINY, num_prediction_layers=further), replace(PLAIN, loss_chunk=chunk))
    initialize(model, PLAIN, seed=0)
    expected = model(tokens, targets)
    expected.backward()
    whole = [p.grad for p in model.parameters()]
    model.zero_grad(set_to_none=True)
    per_rank = ROWS // num_ranks
    of_ranks = [range(rank * per_rank, (rank + 1) * per_rank) for rank in range(num_ranks)]
    cut = [[part for part in _cut(rows, cuts) if len(part)] for rows in of_ranks]
    totals = [sum(max(count - depth, 0) for count in counts) for depth in range(1 + further)]
    told = 0.0
    for parts in cut:
        shares = target_shares(
            [targets[list(part)] for part in parts],
            num_further=further,
            added_up=lambda _: totals,
            num_averaged=num_ranks,
        )
        for part, share in zip(parts, shares, strict=True):
            loss = model(tokens[list(part)], targets[list(part)], shares=share)
            (loss / num_ranks).backward()
            told += loss.item() / num_ranks if share.main else 0.0
    assert told == pytest.approx(expected.item(), rel=1e-6)
    for parameter, grad in zip(model.parameters(), whole, strict=True):
        error = torch.linalg.vector_norm(parameter.grad - grad)
        assert error <= 1e-6 * torch.linalg.vector_norm(grad) + 1e-8


def _cut(rows, cuts):
    edges = [0, *(min(cut, len(rows)) for cut in cuts), len(rows)]
    return [rows[start:end] for start, end in itertools.pairwise(edges)]
