"""The largest size that fits: exact against a scan, few traces, a clear answer where nothing fits."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger.tracer import TraceError, trace
from torchledger.tracer.errors import NothingFits
from torchledger.tracer.largest import _largest, max_batch, max_sequence
from torchledger.tracer.whatif import Change

B, T, D, V = 4, 16, 8, 11


class Language(nn.Module):
    """Token ids [b, t] -> logits [b, t, v], through two blocks that share their weights."""

    def __init__(self):
        super().__init__()
        block = [nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D)]
        self.embedding, self.head = nn.Embedding(V, D), nn.Linear(D, V)
        self.layers = nn.ModuleList(nn.Sequential(*block) for _ in range(2))

    def forward(self, tokens):
        """Blocks one after the other."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


def ids():
    """A batch of token ids."""
    return torch.zeros(B, T, dtype=torch.long)


def cross_entropy(logits, tokens):
    return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


OPTIONS = {"loss": cross_entropy, "optimizer": torch.optim.AdamW}


def _peak(batch_size=B, length=T):
    batch = torch.zeros(batch_size, length, dtype=torch.long)
    return trace(Language(), batch, **OPTIONS).peak().peak_bytes


def test_the_largest_batch_fits_and_one_more_does_not():
    limit = _peak(batch_size=7) + 100
    found = max_batch(Language(), limit, ids(), **OPTIONS)
    assert found.size == 7
    assert found.need_bytes == _peak(batch_size=7) <= limit < _peak(batch_size=8)
    assert found.num_traces == len(found.tried) <= 8


def test_the_longest_sequence():
    limit = _peak(length=20)
    assert max_sequence(Language(), limit, ids(), **OPTIONS).size == 20


def test_another_recipe_fits_more():
    limit = _peak(batch_size=6)
    found = max_batch(Language(), limit, ids(), change=Change(checkpoint="full"), **OPTIONS)
    assert found.size > 6


def test_a_builder_of_the_batch_size():
    """A function of the batch size that builds the user's own step."""

    def build(size):
        def made():
            model, batch = Language(), torch.zeros(size, T, dtype=torch.long)
            optimizer = torch.optim.AdamW(model.parameters())

            def step():
                cross_entropy(model(batch), batch).backward()
                optimizer.step()
                optimizer.zero_grad()

            return step

        return made()

    limit = _peak(batch_size=5)
    assert max_batch(build, limit).size == 5


def test_where_nothing_fits_the_least_is_said():
    least = _peak(batch_size=1)
    with pytest.raises(NothingFits, match=f"no batch fits into 1,000 bytes: the least takes {least:,}") as caught:
        max_batch(Language(), 1000, ids(), **OPTIONS)
    assert caught.value.least_bytes == least
    assert isinstance(caught.value, TraceError)


def test_every_size_that_is_traced_is_told():
    """In the order of the search, with the bytes that it takes."""
    told = []
    limit = _peak(batch_size=3)
    found = max_batch(Language(), limit, ids(), on_tried=lambda *size: told.append(size), **OPTIONS)
    assert told == list(found.tried.items())
    assert max_sequence(Language(), limit, ids(), at_most=1, on_tried=lambda *size: told.append(size), **OPTIONS)
    assert told[-1][0] == 1


def test_the_search_may_be_capped():
    found = max_batch(Language(), 10**12, ids(), at_most=3, **OPTIONS)
    assert (found.size, found.is_capped) == (3, True)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("answer", [1, 2, 3, 7, 100, 12_345, 1_000_000])
def test_the_search_is_exact_and_short(power, answer):
    """On needs that grow in proportion or with the square; never many traces."""
    found = _largest("batch", lambda n: 1000 + 3 * n**power, 1000 + 3 * answer**power + 2, 1 << 24)
    assert found.size == answer
    assert found.num_traces <= 40


def test_needs_that_grow_in_steps():
    """Reserved bytes come in segments of 2 MiB: the search still finds the last size that fits."""
    found = _largest("batch", lambda n: -(-n // 37) * 2**21, 10 * 2**21, 1 << 20)
    assert found.size == 370


@pytest.mark.parametrize("wrong", ["80GB", 0, -1, None])
def test_a_memory_that_is_none(wrong):
    """Bytes are a number: a text is refused before anything is traced."""
    with pytest.raises(TraceError, match=f"the memory is {wrong!r}. It is a number"):
        max_batch(nn.Linear(2, 2), wrong, torch.ones(1, 2), loss=lambda y, _: y.sum())
