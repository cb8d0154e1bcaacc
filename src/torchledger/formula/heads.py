"""What the core of attention is given: queries, keys and values by head, and what layers of one kind share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torchledger.formula.value import Value
from torchledger.ledger import Amount


class Heads(NamedTuple):
    """Queries [B, T, H, d], keys [B, T, K, d] and values [B, T, K, value size]."""

    query: Value
    key: Value
    value: Value


@dataclass(frozen=True, slots=True)
class Context:
    """What the layers of one kind share.

    Attributes:
        mask: what is added to the scores; nothing where the kernel knows causality by itself.
        pairs: query-key pairs that the mask lets through.
    """

    mask: Value | None
    pairs: Amount
