"""Losses: in pieces what they are at once, and beside each other only the first is told."""

import pytest
import torch
from torch.nn import functional

from torchledger.trainer.loss import LossInPieces, beside, capped

TOKENS, HIDDEN, VOCABULARY = 22, 8, 30


def _drawn(*, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    h, weight = (
        torch.randn(n, HIDDEN, generator=generator, dtype=dtype).requires_grad_() for n in (TOKENS, VOCABULARY)
    )
    bias = torch.randn(VOCABULARY, generator=generator, dtype=dtype).requires_grad_()
    targets = torch.randint(0, VOCABULARY, (TOKENS,), generator=generator)
    targets[3:7] = -100
    return h, weight, bias, targets


@pytest.mark.parametrize("cap", [None, 3.0])
@pytest.mark.parametrize("chunk", [1, 5, 11, 22, 100])
def test_loss_and_gradients_are_those_of_all_tokens_at_once(chunk, cap):
    """Also where some targets do not count, and after a factor (a micro-batch's share)."""
    h, weight, bias, targets = _drawn(dtype=torch.float32)
    logits = capped(functional.linear(h, weight, bias), cap)
    at_once = functional.cross_entropy(logits, targets)
    expected = torch.autograd.grad(at_once * 0.375, (h, weight, bias))
    loss = LossInPieces(chunk, cap)(h, weight, bias, targets)
    torch.testing.assert_close(loss, at_once)
    torch.testing.assert_close(torch.autograd.grad(loss * 0.375, (h, weight, bias)), expected)


def test_a_frozen_head_has_no_gradient_and_neither_has_a_frozen_input():
    h, weight, _, targets = _drawn(dtype=torch.float32)
    LossInPieces(5, None)(h, weight.detach(), None, targets).backward()
    assert h.grad is not None
    assert weight.grad is None
    LossInPieces(5, None)(h.detach(), weight, None, targets).backward()
    assert weight.grad is not None


def test_without_gradients_it_is_the_same_loss():
    h, weight, bias, targets = _drawn(dtype=torch.float32)
    with torch.no_grad():
        loss = LossInPieces(4, None)(h, weight, bias, targets)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, functional.cross_entropy(functional.linear(h, weight, bias), targets))


def test_where_no_target_counts_the_loss_is_zero_and_so_is_the_gradient():
    h, weight, bias, targets = _drawn(dtype=torch.float32)
    loss = LossInPieces(4, None)(h, weight, bias, torch.full_like(targets, -100))
    loss.backward()
    assert loss.item() == 0
    assert h.grad.count_nonzero() == 0


def test_a_loss_beside_another_is_not_told_but_has_its_gradient():
    x = torch.tensor(3.0, requires_grad=True)
    total = beside(x * 2, [x * 10, x * 100])
    assert total.item() == 6
    total.backward()
    assert x.grad.item() == 2 + 10 + 100


def test_with_nothing_beside_it_a_loss_is_itself():
    loss = torch.tensor(1.0, requires_grad=True)
    assert beside(loss, []) is loss


class _Alone:
    """A split of the vocabulary in which one rank has all rows."""

    first = 0

    def largest(self, mine):
        return mine

    def added(self, mine):
        return mine


@pytest.mark.parametrize("cap", [None, 3.0])
def test_a_split_vocabulary_has_the_loss_and_gradients_of_a_whole_one(cap):
    """A rank that has every row tells others nothing new: also where some targets do not count."""
    h, weight, bias, targets = _drawn(dtype=torch.float32)
    found = []
    for split in (None, _Alone()):
        loss = LossInPieces(5, cap)(h, weight, bias, targets, split)
        found.append((loss, *torch.autograd.grad(loss, (h, weight, bias))))
    for ours, whole in zip(*found, strict=True):
        torch.testing.assert_close(ours, whole)
