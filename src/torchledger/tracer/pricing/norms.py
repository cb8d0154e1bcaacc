"""Prices of normalization by channel and group, and of weights."""

from __future__ import annotations

from torchledger import ops
from torchledger.ledger import Work
from torchledger.ops import Piece
from torchledger.tracer.pricing.seen import Seen, price_of, size_of

#: Operations that are told in their arguments whether they train; the others do as their name says.
_ALWAYS = {
    "_native_batch_norm_legit_no_training": False,
    "_batch_norm_no_update": False,
    "_batch_norm_with_update": True,
    "_batch_norm_with_update_functional": True,
    "quantized_batch_norm": False,
}


@price_of("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "quantized_batch_norm")
@price_of("_native_batch_norm_legit", "_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training")
@price_of("_batch_norm_with_update", "_batch_norm_with_update_functional", "_batch_norm_no_update")
def batch_norm(seen: Seen) -> tuple[Piece, ...]:
    """BatchNorm; what it normalizes by is made of the batch in training, and given in evaluation."""
    training = _ALWAYS.get(seen.op, bool(seen.arguments.get("training")))
    return ops.batch_norm(
        *_channels(seen, "input"),
        training=training,
        affine=seen.optional("weight") is not None,
        bias=seen.optional("bias") is not None,
        running=seen.optional("running_mean") is not None,
    )


@price_of("native_batch_norm_backward", "cudnn_batch_norm_backward", "miopen_batch_norm_backward")
@price_of("batch_norm_backward")
def batch_norm_backward(seen: Seen) -> tuple[Piece, ...]:
    """Its gradients, those that are asked for."""
    trains = bool(seen.arguments.get("train", seen.arguments.get("update", True)))
    pieces = ops.batch_norm_backward(
        *_channels(seen, "input"), training=trains, affine=seen.optional("weight") is not None
    )
    return _asked(seen, pieces)


@price_of("batch_norm_stats", "batch_norm_update_stats")
def batch_statistics(seen: Seen) -> tuple[Piece, ...]:
    """Mean and variance of each channel (of one rank of a synchronized norm)."""
    return ops.reduction("var", *_channels(seen, "input"))


@price_of("batch_norm_gather_stats", "batch_norm_gather_stats_with_counts")
def gathered_statistics(seen: Seen) -> tuple[Piece, ...]:
    """Means and variances of all ranks combined: a rank and channel 9, two divisions (Chan's formula, Welford.h)."""
    ranks = seen.tensor("mean").num_elements
    work = Work.of_flops(9 * ranks, transcendentals=2 * ranks)
    return (Piece("batch_norm_gather", "normalization", work, (("values", ranks),)),)


@price_of("batch_norm_elemt")
def batch_norm_apply(seen: Seen) -> tuple[Piece, ...]:
    """(x - μ)·r·w + b: with r·w and b - μ·r·w made a channel, as in evaluation without the root."""
    elements = seen.num_results
    return (Piece("batch_norm", "normalization", Work.of_flops(2 * elements), (("elements", elements),)),)


@price_of("batch_norm_backward_reduce")
def batch_norm_backward_sums(seen: Seen) -> tuple[Piece, ...]:
    """Sums of dy and of (x - μ)·dy: n - 1, and 2n + n - 1 a channel; times r for the weight's gradient."""
    channels, size = _channels(seen, "input")
    shape = (("channels", channels), ("size", size))
    work = Work.of_flops(channels * (4 * size - 1))
    return (Piece("batch_norm_backward_sums", "normalization", work, shape, "input"),)


@price_of("batch_norm_backward_elemt")
def batch_norm_backward_apply(seen: Seen) -> tuple[Piece, ...]:
    """(dy - mean - (x - μ)·k)·r·w: 5 an element."""
    elements = seen.num_results
    work = Work.of_flops(5 * elements)
    return (Piece("batch_norm_backward", "normalization", work, (("elements", elements),), "input"),)


@price_of("native_group_norm")
def group_norm(seen: Seen) -> tuple[Piece, ...]:
    """GroupNorm."""
    return ops.group_norm(*_groups(seen), affine=seen.optional("weight") is not None)


@price_of("native_group_norm_backward")
def group_norm_backward(seen: Seen) -> tuple[Piece, ...]:
    """Its gradients, those that are asked for."""
    return _asked(seen, ops.group_norm_backward(*_groups(seen), affine=seen.optional("weight") is not None))


@price_of("_weight_norm_interface")
def weight_norm(seen: Seen) -> tuple[Piece, ...]:
    """A weight as a direction and a length."""
    return ops.weight_norm(*_rows(seen, "v", "g"))


@price_of("_weight_norm_interface_backward")
def weight_norm_backward(seen: Seen) -> tuple[Piece, ...]:
    """The gradients of both."""
    return ops.weight_norm_backward(*_rows(seen, "saved_v", "saved_g"))


@price_of("renorm", "renorm_")
def renorm(seen: Seen) -> tuple[Piece, ...]:
    """Slices along a dimension brought under a largest norm."""
    shape = seen.tensor("self").shape
    rows = shape[seen.arguments["dim"]]
    return ops.renorm(rows, size_of(shape) // max(rows, 1))


@price_of("embedding_renorm_", "embedding_renorm")
def embedding_renorm(seen: Seen) -> tuple[Piece, ...]:
    """Rows of a table that are looked up, brought under a largest norm."""
    seen.assumptions.append("embedding max_norm: every index is another row, and every row is too long")
    return ops.renorm(
        seen.tensor("indices").num_elements,
        seen.tensor("self").shape[1],
        element_bytes=seen.tensor("self").dtype.itemsize,
    )


def _channels(seen: Seen, name: str) -> tuple[int, int]:
    shape = seen.tensor(name).shape
    return shape[1], size_of(shape) // max(shape[1], 1)


def _groups(seen: Seen) -> tuple[int, int, int, int]:
    batch, channels, size, groups = (int(seen.arguments[name]) for name in ("N", "C", "HxW", "group"))
    return batch, channels, size, groups


def _rows(seen: Seen, direction: str, length: str) -> tuple[int, int]:
    rows = seen.tensor(length).num_elements
    return rows, seen.tensor(direction).num_elements // max(rows, 1)


def _asked(seen: Seen, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Pieces of the gradients that `output_mask` asks for; all where there is no mask."""
    if not seen.arguments.get("output_mask"):
        return pieces
    of_input, *of_weights = seen.flags("output_mask")
    return tuple(piece for piece in pieces if (of_input if piece.gradient_of == "input" else any(of_weights)))
