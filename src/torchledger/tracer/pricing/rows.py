"""Prices of what works row by row: norms, softmax, cross-entropy, embeddings."""

from __future__ import annotations

from torchledger import ops
from torchledger.ops import Piece
from torchledger.tracer.pricing.seen import Seen, price_of, size_of


@price_of("embedding")
def embedding(seen: Seen) -> tuple[Piece, ...]:
    """Rows of a table by index."""
    table, indices = seen.tensor("weight"), seen.tensor("indices")
    return ops.embedding(
        indices.num_elements, *table.shape, element_bytes=table.dtype.itemsize, index_bytes=indices.dtype.itemsize
    )


@price_of("embedding_dense_backward")
def embedding_backward(seen: Seen) -> tuple[Piece, ...]:
    """The dense gradient of a lookup table."""
    gradient, indices = seen.tensor("grad_output"), seen.tensor("indices")
    return ops.embedding_backward(
        indices.num_elements,
        seen.results[0].shape[0],
        gradient.shape[-1],
        element_bytes=gradient.dtype.itemsize,
        index_bytes=indices.dtype.itemsize,
    )


@price_of("_log_softmax", "log_softmax")
def log_softmax(seen: Seen) -> tuple[Piece, ...]:
    """Log-softmax along one dimension."""
    rows, columns = along(seen.tensor("self").shape, seen.arguments["dim"])
    return ops.log_softmax(rows, columns)


@price_of("_log_softmax_backward_data")
def log_softmax_backward(seen: Seen) -> tuple[Piece, ...]:
    """Its gradient."""
    rows, columns = along(seen.tensor("output").shape, seen.arguments["dim"])
    return ops.log_softmax_backward(rows, columns)


@price_of("nll_loss_forward", "nll_loss2d_forward")
def nll_loss(seen: Seen) -> tuple[Piece, ...]:
    """Negative log-likelihood of one class a row."""
    return ops.nll_loss(*_classes(seen))


@price_of("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(seen: Seen) -> tuple[Piece, ...]:
    """Its gradient."""
    return ops.nll_loss_backward(*_classes(seen))


@price_of("_softmax", "_safe_softmax", "softmax")
def softmax(seen: Seen) -> tuple[Piece, ...]:
    """Softmax along one dimension."""
    return ops.softmax(*along(seen.tensor("self").shape, seen.arguments["dim"]))


@price_of("_masked_softmax")
def masked_softmax(seen: Seen) -> tuple[Piece, ...]:
    """Softmax of the elements that a mask lets through, counted in full: which they are is data."""
    dim = seen.arguments.get("dim")
    return ops.softmax(*along(seen.tensor("self").shape, -1 if dim is None else dim))


@price_of("_masked_softmax_backward")
def masked_softmax_backward(seen: Seen) -> tuple[Piece, ...]:
    """Its gradient."""
    dim = seen.arguments.get("dim")
    return ops.softmax_backward(*along(seen.tensor("output").shape, -1 if dim is None else dim))


@price_of("_softmax_backward_data")
def softmax_backward(seen: Seen) -> tuple[Piece, ...]:
    """Its gradient."""
    return ops.softmax_backward(*along(seen.tensor("output").shape, seen.arguments["dim"]))


@price_of("native_layer_norm")
def layer_norm(seen: Seen) -> tuple[Piece, ...]:
    """LayerNorm over the last dimensions."""
    return ops.layer_norm(
        *_normalized(seen), affine=seen.optional("weight") is not None, bias=seen.optional("bias") is not None
    )


@price_of("native_layer_norm_backward")
def layer_norm_backward(seen: Seen) -> tuple[Piece, ...]:
    """Its gradients."""
    return ops.layer_norm_backward(
        *_normalized(seen), affine=seen.optional("weight") is not None, bias=seen.optional("bias") is not None
    )


@price_of("_fused_rms_norm")
def rms_norm(seen: Seen) -> tuple[Piece, ...]:
    """RMSNorm as one kernel."""
    return ops.rms_norm(*_normalized(seen), affine=seen.optional("weight") is not None)


@price_of("_fused_rms_norm_backward")
def rms_norm_backward(seen: Seen) -> tuple[Piece, ...]:
    """Its gradients."""
    return ops.rms_norm_backward(*_normalized(seen), affine=seen.optional("weight") is not None)


def along(shape: tuple[int, ...], dim: int) -> tuple[int, int]:
    """Rows and columns of a tensor worked on along one dimension."""
    columns = shape[dim] if shape else 1
    return size_of(shape) // max(columns, 1), columns


def _classes(seen: Seen) -> tuple[int, int]:
    scores = seen.tensor("self")
    columns = scores.shape[1] if len(scores.shape) > 1 else scores.shape[0]
    return scores.num_elements // columns, columns


def _normalized(seen: Seen) -> tuple[int, int]:
    size = size_of(tuple(seen.arguments["normalized_shape"][1:]))
    return seen.first.num_elements // size, size
