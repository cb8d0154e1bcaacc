"""Batches of other sizes: shapes change where they mean the same thing, and nothing else does."""

from typing import NamedTuple

import pytest
import torch

from torchledger.tracer import TraceError
from torchledger.tracer.resized import resized

B, T = 3, 5


class Pair(NamedTuple):
    """A batch as some loaders give it."""

    ids: torch.Tensor
    name: str


def test_rows_and_tokens_of_every_tensor():
    """Ids, a mask over pairs of tokens, labels per row, a table that has nothing to do with either."""
    batch = {
        "ids": torch.zeros(B, T, dtype=torch.long),
        "mask": torch.zeros(B, 1, T, T, dtype=torch.bool),
        "labels": torch.zeros(B),
        "table": torch.zeros(7),
        "flag": True,
    }
    shapes = {
        key: tuple(getattr(value, "shape", ()))
        for key, value in resized(batch, batch_size=8, sequence_length=9).items()
    }
    assert shapes == {"ids": (8, 9), "mask": (8, 1, 9, 9), "labels": (8,), "table": (7,), "flag": ()}
    assert resized(batch, batch_size=8)["mask"].dtype is torch.bool
    assert resized(batch, batch_size=8)["ids"].device.type == "meta"


def test_kinds_of_batches_stay():
    pair = resized(Pair(torch.zeros(B, T), "a"), batch_size=1)
    assert type(pair) is Pair
    assert (pair.ids.shape[0], pair.name) == (1, "a")
    assert type(resized([torch.zeros(B)], batch_size=2)) is list
    assert resized(torch.zeros(B, requires_grad=True), batch_size=2).requires_grad


def test_what_cannot_be_resized():
    with pytest.raises(TraceError, match="no tensor whose first dimension"):
        resized({"name": "a"}, batch_size=2)
    with pytest.raises(TraceError, match=r"no tensor \[batch, tokens, ...\]"):
        resized(torch.zeros(B), sequence_length=2)
