"""How checkpoints of other projects lay out a matrix: fused, transposed, rotary dimensions in another order.

Each layout is a pair: `split` turns the tensor there into ours, `join` turns ours into the one there. They only move
numbers, so that going there and back gives the same bits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor

from torchledger.spec import ModelSpec

__all__ = ["LAYOUTS", "Layout"]


@dataclass(frozen=True, slots=True)
class Layout:
    """One way to store tensors.

    Attributes:
        split: (model, stored tensor, rows of each of ours) to ours, in order.
        join: (model, ours in order) to the stored tensor.
    """

    split: Callable[[ModelSpec, Tensor, Sequence[int]], list[Tensor]]
    join: Callable[[ModelSpec, Sequence[Tensor]], Tensor]


def _split_rows(_spec: ModelSpec, stored: Tensor, rows: Sequence[int]) -> list[Tensor]:
    return list(torch.split(stored, list(rows)))


def _join_rows(_spec: ModelSpec, ours: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(ours))


def _transposed(_spec: ModelSpec, stored: Tensor, _rows: Sequence[int]) -> list[Tensor]:
    """GPT-2's `Conv1D` keeps [in, out]; its bias [out] is as ours."""
    return [stored.t() if stored.ndim == 2 else stored]


def _transpose(_spec: ModelSpec, ours: Sequence[Tensor]) -> Tensor:
    return _transposed(_spec, ours[0], ())[0]


def _split_heads(spec: ModelSpec, stored: Tensor, _rows: Sequence[int]) -> list[Tensor]:
    """Head by head: for each key-value head its G query heads, its key, its value (G is 1 in GPT-NeoX and BLOOM)."""
    K, size = spec.num_key_value_heads, spec.head_size
    heads = rearrange(stored, "(k g d) ... -> k g d ...", k=K, d=size)
    query, key, value = heads[:, :-2], heads[:, -2:-1], heads[:, -1:]
    return [rearrange(part, "k g d ... -> (k g d) ...") for part in (query, key, value)]


def _join_heads(spec: ModelSpec, ours: Sequence[Tensor]) -> Tensor:
    K, size = spec.num_key_value_heads, spec.head_size
    parts = [rearrange(part, "(k g d) ... -> k g d ...", k=K, d=size) for part in ours]
    return rearrange(torch.cat(parts, dim=1), "k g d ... -> (k g d) ...")


def _interleaved(first: Callable[[ModelSpec], tuple[int, int]]) -> Layout:
    """Rotation of neighbours (2i, 2i + 1), as in RoFormer's paper, where ours turns i with i + rotary/2.

    Args:
        first: of a model, (rows in one head, row of a head at which its rotated ones begin).
    """

    def reorder(spec: ModelSpec, stored: Tensor, pattern: str, sizes: Mapping[str, int]) -> Tensor:
        size, begin = first(spec)
        heads = rearrange(stored, "(h d) ... -> h d ...", d=size)
        end = begin + spec.rotary_size
        turned = rearrange(heads[:, begin:end], pattern, **sizes)
        return rearrange(torch.cat((heads[:, :begin], turned, heads[:, end:]), dim=1), "h d ... -> (h d) ...")

    def split(spec: ModelSpec, stored: Tensor, _rows: Sequence[int]) -> list[Tensor]:
        return [reorder(spec, stored, "h (i two) ... -> h (two i) ...", {"two": 2})]

    def join(spec: ModelSpec, ours: Sequence[Tensor]) -> Tensor:
        return reorder(spec, ours[0], "h (two i) ... -> h (i two) ...", {"two": 2})

    return Layout(split, join)


#: GPT-J rotates the first dimensions of a head, DeepSeek's queries the last ones, its keys those after the latent.
LAYOUTS: Mapping[str, Layout] = {
    "one_after_another": Layout(_split_rows, _join_rows),
    "transposed": Layout(_transposed, _transpose),
    "head_by_head": Layout(_split_heads, _join_heads),
    "interleaved": _interleaved(lambda spec: (spec.head_size, 0)),
    "interleaved_tail": _interleaved(lambda spec: (spec.head_size, spec.attention.plain_head_size)),
    "interleaved_end": _interleaved(
        lambda spec: (spec.attention.key_value_rank + spec.rotary_size, spec.attention.key_value_rank)
    ),
}
