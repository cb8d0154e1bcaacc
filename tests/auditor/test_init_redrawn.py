import math

import pytest
import torch
from torch import nn

from torchledger.auditor.errors import AuditError
from torchledger.auditor.init_redrawn import SCHEMES, redraw
from torchledger.auditor.init_schemes import truncated_share
from torchledger.auditor.init_signals import look
from torchledger.auditor.subject import Subject

WIDTH, VOCAB = 256, 300
CUT = truncated_share(3)


class _Language(nn.Module):
    def __init__(self, *, tied):
        super().__init__()
        self.table = nn.Embedding(VOCAB, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, x):
        h = self.table(x)
        return self.head(self.norm(h + self.down(torch.relu(self.up(h))))).square().mean()


def _redrawn(scheme, *, tied=False):
    model = _Language(tied=tied)
    nn.init.ones_(model.up.bias)
    signals = look(Subject("language", model, torch.randint(VOCAB, (2, 16))))
    redraw(model, signals, scheme, vocab_size=VOCAB)
    return model


@pytest.mark.parametrize(
    ("scheme", "up", "down", "head"),
    [
        ("fan_in", 1 / math.sqrt(WIDTH), 1 / math.sqrt(2 * WIDTH), 1 / WIDTH),
        ("xavier", math.sqrt(2 / (3 * WIDTH)), math.sqrt(2 / (3 * WIDTH)), 1 / WIDTH),
        ("kaiming", math.sqrt(2 / WIDTH), math.sqrt(1 / WIDTH), 1 / WIDTH),
        ("gpt2", 0.02, 0.02, 0.02),
    ],
)
def test_matrices_are_drawn_by_their_fans_and_biases_begin_at_0(scheme, up, down, head):
    """Each scheme's own formula, cut at three spreads; one matrix writes to the stream, so that gpt2 divides by 1."""
    model = _redrawn(scheme)
    stds = [model.up.weight.std().item(), model.down.weight.std().item(), model.head.weight.std().item()]
    assert stds == pytest.approx([up * CUT, down * CUT, head * CUT], rel=0.01)
    assert not model.up.bias.any()
    assert bool((model.norm.weight == 1).all())


def test_a_tied_head_is_small_and_an_untied_table_stays():
    """0.25/sqrt(256) where table and head are one; else the table is left, being no matrix that multiplies."""
    assert _redrawn("fan_in", tied=True).table.weight.std().item() == pytest.approx(0.25 / 16 * CUT, rel=0.01)
    assert _redrawn("fan_in").table.weight.std().item() == pytest.approx(1, rel=0.01)


def test_orthogonal_rows_are_orthogonal():
    """W·Wᵀ is one, of the shorter side."""
    weight = _redrawn("orthogonal").down.weight
    assert torch.allclose(weight @ weight.t(), torch.eye(WIDTH), atol=1e-5)


def test_the_same_seed_draws_the_same_values():
    """Values depend on the seed alone, and on no stream that the caller has."""
    torch.manual_seed(1)
    one = _redrawn("fan_in").up.weight
    torch.manual_seed(2)
    assert torch.equal(one, _redrawn("fan_in").up.weight)


def test_an_unknown_scheme_is_refused_with_those_that_are_known():
    """The message names what there is."""
    with pytest.raises(AuditError, match=", ".join(SCHEMES)):
        _redrawn("lecun")
