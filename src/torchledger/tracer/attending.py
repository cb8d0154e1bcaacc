"""`scaled_dot_product_attention` that runs as two products: they are attention, and its mask is known.

torch takes it apart where no fused kernel fits (dropout on the CPU, values wider than queries), and the products alone
do not tell that they are attention, nor that half of the pairs are masked. A fused kernel's call does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
from torch.nn import functional

#: What is entered around an attention, told its visible pairs and all pairs, nothing where a mask is data.
Attending: TypeAlias = Callable[[tuple[int, int] | None], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def attention_is_told(attending: Attending) -> Iterator[None]:
    """While this is on, products inside `torch.nn.functional.scaled_dot_product_attention` are of kind `attention`.

    Without a mask all pairs are visible, under `is_causal` those of the triangle; which ones a mask tensor lets through
    is data.

    Args:
        attending: entered around each.
    """
    original: Any = functional.scaled_dot_product_attention

    def attend(  # noqa: PLR0917  # torch's own signature
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **options: Any,
    ) -> Any:
        visible = None if attn_mask is not None else _visible(query.shape[-2], key.shape[-2], is_causal=is_causal)
        with attending(visible):
            return original(query, key, value, attn_mask, dropout_p, is_causal, **options)

    functional.scaled_dot_product_attention = attend  # type: ignore[assignment]  # `scale` and `enable_gqa` are passed on
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = original


def _visible(queries: int, keys: int, *, is_causal: bool) -> tuple[int, int]:
    """Pairs that are let through, and all: query i sees keys 0 to i, the mask's corner being at the top left."""
    pairs = queries * keys
    return (sum(min(query + 1, keys) for query in range(queries)) if is_causal else pairs), pairs
