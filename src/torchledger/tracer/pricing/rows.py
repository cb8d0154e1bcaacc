"""Prices of what works row by row: norms, softmax, losses, lookups, reductions."""

from __future__ import annotations

from dataclasses import replace

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


@price_of("_log_softmax")
def log_softmax(seen: Seen) -> tuple[Piece, ...]:
    """Log-softmax along one dimension."""
    rows, columns = _along(seen.tensor("self").shape, seen.arguments["dim"])
    return ops.log_softmax(rows, columns)


@price_of("_log_softmax_backward_data")
def log_softmax_backward(seen: Seen) -> tuple[Piece, ...]:
    """Its gradient."""
    rows, columns = _along(seen.tensor("output").shape, seen.arguments["dim"])
    return ops.log_softmax_backward(rows, columns)


@price_of("nll_loss_forward", "nll_loss2d_forward")
def nll_loss(seen: Seen) -> tuple[Piece, ...]:
    """Negative log-likelihood of one class a row."""
    return ops.nll_loss(*_classes(seen))


@price_of("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(seen: Seen) -> tuple[Piece, ...]:
    """Its gradient."""
    return ops.nll_loss_backward(*_classes(seen))


@price_of("_softmax", "_safe_softmax")
def softmax(seen: Seen) -> tuple[Piece, ...]:
    """Softmax along one dimension."""
    return ops.softmax(*_along(seen.tensor("self").shape, seen.arguments["dim"]))


@price_of("_softmax_backward_data")
def softmax_backward(seen: Seen) -> tuple[Piece, ...]:
    """Its gradient."""
    return ops.softmax_backward(*_along(seen.tensor("output").shape, seen.arguments["dim"]))


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


@price_of("sum", "mean", "amax", "amin", "max", "min", "any", "all", "argmax", "argmin", "prod", "var", "std")
@price_of("linalg_vector_norm", "norm", "logsumexp", "cumsum")
def reduction(seen: Seen) -> tuple[Piece, ...]:
    """Rows of elements to one value each."""
    name = {
        "max": "amax", "min": "amin", "argmax": "amax", "argmin": "amin", "all": "any", "prod": "sum", "std": "var",
        "linalg_vector_norm": "norm",
    }.get(seen.op, seen.op)  # fmt: skip
    elements = seen.tensor("self").num_elements
    if name == "logsumexp":
        return ops.softmax(seen.num_results, elements // max(seen.num_results, 1), op="logsumexp")
    if name == "cumsum":
        rows, columns = _along(seen.tensor("self").shape, seen.arguments["dim"])
        return ops.reduction("sum", rows, columns)
    return ops.reduction(name, seen.num_results, elements // max(seen.num_results, 1))


@price_of("topk")
def largest(seen: Seen) -> tuple[Piece, ...]:
    """The k largest of each row, as k passes over it."""
    passes = ops.pointwise("compare", seen.tensor("self").num_elements * seen.arguments["k"])
    return tuple(replace(piece, op="topk") for piece in passes)


@price_of("sort", "argsort")
def sorted_(seen: Seen) -> tuple[Piece, ...]:
    """A sort is told in bytes: its comparisons depend on the data."""
    return ops.copy(seen.tensor("self").num_elements, op="sort")


@price_of("index_select", "gather", "index", "take_along_dim")
def gather(seen: Seen) -> tuple[Piece, ...]:
    """Elements picked by index: the rows that one index picks are as long as the result has elements an index."""
    indices = _indices(seen)
    return ops.gather(indices, max(seen.num_results // max(indices, 1), 1))


@price_of("scatter_add", "scatter_add_", "index_add", "index_add_", "index_put", "index_put_", "_index_put_impl_")
@price_of("scatter", "scatter_")
def scatter(seen: Seen) -> tuple[Piece, ...]:
    """Elements added (or written) at an index."""
    source = next((meta for name in ("src", "source", "values") if (meta := seen.optional(name)) is not None), None)
    elements = _indices(seen) if source is None else source.num_elements
    return ops.scatter_add(1, elements)


def _along(shape: tuple[int, ...], dim: int) -> tuple[int, int]:
    columns = shape[dim] if shape else 1
    return size_of(shape) // max(columns, 1), columns


def _classes(seen: Seen) -> tuple[int, int]:
    scores = seen.tensor("self")
    columns = scores.shape[1] if len(scores.shape) > 1 else scores.shape[0]
    return scores.num_elements // columns, columns


def _normalized(seen: Seen) -> tuple[int, int]:
    size = size_of(tuple(seen.arguments["normalized_shape"][1:]))
    return seen.first.num_elements // size, size


def _indices(seen: Seen) -> int:
    index = seen.optional("index")
    if index is not None:
        return index.num_elements
    found = seen.tensors("indices")
    return max((meta.num_elements for meta in found), default=1)
