"""Prices of reading and writing by index: gathers, scatters, bags of embeddings."""

from __future__ import annotations

from dataclasses import replace

from torchledger import ops
from torchledger.ops import Piece, moved
from torchledger.tracer.pricing.seen import Seen, price_of, size_of
from torchledger.tracer.signature import TensorMeta

_BAGS = ("sum", "mean", "max")
#: Operations that return a new tensor: they also copy the one that they write into.
_COPYING = frozenset(
    {"scatter_add", "scatter", "index_add", "index_put", "index_copy", "index_fill", "index_reduce", "scatter_reduce",
     "put", "_unsafe_index_put", "_index_put_impl", "_unsafe_masked_index_put_accumulate"}
)  # fmt: skip
#: Operations that write without adding.
_WRITING = frozenset({"scatter", "index_copy", "index_fill"})


@price_of("index_select", "gather", "index", "take_along_dim", "take", "_unsafe_index", "_unsafe_masked_index")
def gather(seen: Seen) -> tuple[Piece, ...]:
    """Elements picked by index: the rows that one index picks are as long as the result has elements an index."""
    indices = _indices(seen)
    count = max((meta.num_elements for meta in indices), default=1)
    size = seen.results[0].dtype.itemsize
    pieces = ops.gather(count, max(seen.num_results // max(count, 1), 1), element_bytes=size)
    written = size * seen.num_results
    mask = seen.optional("mask")
    read = written + _bytes(indices) + (mask.num_bytes if mask is not None else 0)
    return moved(pieces, bytes_read=read, bytes_written=written)


@price_of("scatter_add", "scatter_add_", "index_add", "index_add_", "index_put", "index_put_", "_index_put_impl_")
@price_of("scatter", "scatter_", "index_copy", "index_copy_", "index_fill", "index_fill_", "index_reduce")
@price_of("index_reduce_", "scatter_reduce", "scatter_reduce_", "put", "put_", "_unsafe_index_put", "_index_put_impl")
@price_of("_unsafe_masked_index_put_accumulate")
def scatter(seen: Seen) -> tuple[Piece, ...]:
    """Elements added (multiplied, compared) or written at an index; a mean is divided by how many came together."""
    destination, indices = seen.tensor("self"), _indices(seen)
    source = next((meta for name in ("src", "source", "values") if (meta := seen.optional(name)) is not None), None)
    elements = _touched(seen, destination, indices)
    size = destination.dtype.itemsize
    combines = _combines(seen)
    (piece,) = ops.scatter_add(1, elements)
    scaled = elements if seen.op.startswith("index_add") and seen.arguments.get("alpha", 1) != 1 else 0
    means = elements if seen.arguments.get("reduce") == "mean" else 0
    flops = (elements if combines else 0) + scaled
    work = replace(piece.work, flops_full=flops, flops_exact=flops, flops_executed=flops, transcendentals=means)
    read = _bytes(indices) + (source.num_bytes if source is not None else 0) + (size * elements if combines else 0)
    whole = destination.num_bytes if seen.op in _COPYING else 0
    read += max(whole - size * elements, 0) if whole else 0  # the copy, but for what is written over
    written = whole or size * elements
    name = "scatter_add" if combines else "scatter"
    return moved([replace(piece, op=name, work=work)], bytes_read=read, bytes_written=written)


@price_of("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(seen: Seen) -> tuple[Piece, ...]:
    """Rows of a table looked up and brought together bag by bag."""
    table, indices = seen.tensor("weight"), seen.tensor("indices")
    seen.assumptions.append("embedding_bag: no bag is empty")
    return ops.embedding_bag(
        indices.num_elements, seen.results[0].shape[0], *table.shape, element_bytes=table.dtype.itemsize,
        index_bytes=indices.dtype.itemsize, mode=_BAGS[seen.arguments["mode"]],
        weighted=seen.optional("per_sample_weights") is not None,
    )  # fmt: skip


@price_of("_embedding_bag_backward", "_embedding_bag_dense_backward")
def embedding_bag_backward(seen: Seen) -> tuple[Piece, ...]:
    """The gradient of the table, dense or as rows."""
    gradient, indices = seen.tensor("grad"), seen.tensor("indices")
    bags, hidden = gradient.shape
    rows = int(seen.arguments["num_weights"])
    written = indices.num_elements if seen.arguments.get("sparse") else rows
    pieces = ops.embedding_bag_backward(
        indices.num_elements, bags, written, hidden, element_bytes=gradient.dtype.itemsize,
        index_bytes=indices.dtype.itemsize, mode=_BAGS[seen.arguments["mode"]],
        weighted=seen.optional("per_sample_weights") is not None,
    )  # fmt: skip
    return tuple(replace(piece, shape=tuple((k, rows if k == "vocabulary" else v) for k, v in piece.shape))
                 for piece in pieces)  # fmt: skip


@price_of("_embedding_bag_per_sample_weights_backward")
def embedding_bag_weights_backward(seen: Seen) -> tuple[Piece, ...]:
    """The gradients of the numbers that rows are multiplied by: a row's product with the gradient of its bag."""
    hidden = seen.tensor("weight").shape[1]
    rows = seen.tensor("indices").num_elements
    pieces = ops.reduction("norm", rows, hidden)  # products, and their sum
    return tuple(
        replace(piece, op="embedding_bag_weights_backward", work=replace(piece.work, transcendentals=0))
        for piece in pieces
    )


def _combines(seen: Seen) -> bool:
    """Whether what is there takes part: an add, a product, a compare."""
    name = seen.op.removesuffix("_")
    if name in _WRITING:
        return seen.arguments.get("reduce") is not None
    return bool(seen.arguments.get("accumulate", True))


def _indices(seen: Seen) -> list[TensorMeta]:
    index = seen.optional("index")
    return [index] if index is not None else seen.tensors("indices")


def _touched(seen: Seen, destination: TensorMeta, indices: list[TensorMeta]) -> int:
    """Elements of the destination that are written, once for each time."""
    count = max((meta.num_elements for meta in indices), default=1)
    if "index_put" in seen.op or seen.op.startswith("_unsafe_masked"):
        return _indexed(seen, destination, indices)
    if seen.op.startswith("index_"):
        along = destination.shape[seen.arguments["dim"]] if destination.shape else 1
        return count * (destination.num_elements // max(along, 1))
    return count


def _indexed(seen: Seen, destination: TensorMeta, indices: list[TensorMeta]) -> int:
    """Of `x[a, :, b] = ...`: as many as a and b have together, each with what the colons leave whole."""
    if any(meta.dtype.itemsize == 1 for meta in indices):  # a mask: how many it lets through is data, so all
        return destination.num_elements
    places = [isinstance(item, TensorMeta) for item in seen.arguments["indices"][1:]]
    places += [False] * (len(destination.shape) - len(places))
    whole = tuple(size for size, is_indexed in zip(destination.shape, places, strict=True) if not is_indexed)
    return _broadcast(indices) * size_of(whole)


def _broadcast(indices: list[TensorMeta]) -> int:
    rank = max((len(meta.shape) for meta in indices), default=0)
    shapes = [(1,) * (rank - len(meta.shape)) + meta.shape for meta in indices]
    return size_of(tuple(max(sizes) for sizes in zip(*shapes, strict=True)))


def _bytes(metas: list[TensorMeta]) -> int:
    return sum(meta.num_bytes for meta in metas)
