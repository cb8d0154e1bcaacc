"""What an operation that only moves elements does: which kind of copy it is, by its name and its geometry."""

from __future__ import annotations

from typing import Literal, TypeAlias

from torchledger.formats import strides
from torchledger.tracer.signature import TensorMeta

CopyKind: TypeAlias = Literal[
    "layout", "duplicate", "cast", "transfer", "write", "join", "repeat", "gather", "rearrange", "padding"
]

#: What each kind is, for people.
MEANINGS: dict[CopyKind, str] = {
    "layout": "the same elements in another order of memory",
    "duplicate": "the same elements in the same order, elsewhere",
    "cast": "to another number format",
    "transfer": "to another device",
    "write": "into a tensor that is there",
    "join": "tensors side by side in one",
    "repeat": "the same elements several times",
    "gather": "elements by index",
    "rearrange": "shifted, turned, cut or padded",
    "padding": "a slice's gradient, with zeros for all that the slice left out",
}

#: Operations that only move elements, by name; `clone` and `_to_copy` are told apart by what they are given.
KINDS: dict[str, CopyKind] = {
    "clone": "layout",
    "_to_copy": "cast",
    **dict.fromkeys(("copy_", "_foreach_copy_"), "write"),
    **dict.fromkeys(("cat", "stack", "_chunk_cat", "block_diag"), "join"),
    **dict.fromkeys(("repeat", "repeat_interleave", "expand_copy"), "repeat"),
    **dict.fromkeys(("index", "index_select", "gather", "take", "embedding", "_unsafe_index"), "gather"),
    "masked_select": "gather",
    **dict.fromkeys(
        (
            "roll", "flip", "tril", "triu", "constant_pad_nd", "im2col", "slice_scatter", "select_scatter",
            "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle", "diag_embed",
        ),
        "rearrange",
    ),
    **dict.fromkeys(("slice_backward", "select_backward", "diagonal_backward"), "padding"),
}  # fmt: skip


def kind_of(op: str, operands: tuple[TensorMeta, ...], results: tuple[TensorMeta, ...]) -> CopyKind | None:
    """Which kind of copy an operation is; `None` of one that is none.

    A `clone` of a tensor with an expanded dimension repeats it; one that keeps the strides duplicates it.
    """
    kind = KINDS.get(op)
    if op == "clone" and operands and results:
        return _of_clone(operands[0], results[0])
    if op == "_to_copy" and operands and results and operands[0].dtype == results[0].dtype:
        return "transfer"  # a layout would be cloned
    return kind


def _of_clone(source: TensorMeta, result: TensorMeta) -> CopyKind:
    if any(step == 0 and size > 1 for size, step in zip(source.shape, source.stride, strict=True)):
        return "repeat"
    same = all(
        size == 1 or step == other for size, step, other in zip(source.shape, source.stride, result.stride, strict=True)
    )
    if same or strides.is_contiguous(source.shape, source.stride) == strides.is_contiguous(result.shape, result.stride):
        return "duplicate"
    return "layout"
