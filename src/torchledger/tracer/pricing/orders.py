"""Prices of order: sorts, order statistics, distinct values, searches, histograms."""

from __future__ import annotations

from dataclasses import replace

from torchledger import ops
from torchledger.ops import Piece
from torchledger.tracer.pricing.rows import along
from torchledger.tracer.pricing.seen import Seen, price_of
from torchledger.tracer.signature import TensorMeta


@price_of("topk")
def largest(seen: Seen) -> tuple[Piece, ...]:
    """The k largest of each row, as k passes over it."""
    passes = ops.pointwise("compare", seen.tensor("self").num_elements * seen.arguments["k"])
    return tuple(replace(piece, op="topk") for piece in passes)


@price_of("sort", "argsort", "msort", "median", "nanmedian", "kthvalue", "mode")
def in_order(seen: Seen) -> tuple[Piece, ...]:
    """Each row sorted; an order statistic is counted as the sort that finds it, a mode with a pass over it."""
    values = seen.tensor("self")
    dim = seen.arguments.get("dim", -1)
    whole = seen.op in {"median", "nanmedian"} and "dim" not in seen.arguments
    rows, columns = (1, values.num_elements) if whole else along(values.shape, -1 if dim is None else dim)
    name = {"argsort": "sort", "msort": "sort"}.get(seen.op, seen.op)
    extra = max(columns - 1, 0) if seen.op == "mode" else 0
    return ops.order(rows, columns, op=name, floating=_is_floating(values), extra=extra)


@price_of("_unique", "_unique2")
def distinct(seen: Seen) -> tuple[Piece, ...]:
    """Distinct values: sorted, and each held against the next."""
    values = seen.tensor("self")
    extra = max(values.num_elements - 1, 0)
    return ops.order(1, values.num_elements, op="unique", floating=_is_floating(values), extra=extra)


@price_of("unique_consecutive", "unique_dim_consecutive", "unique_dim")
def distinct_neighbours(seen: Seen) -> tuple[Piece, ...]:
    """Each value (or slice) held against the next; slices in order take an element's compare a compare of slices."""
    values = seen.tensor("self")
    if seen.op == "unique_dim":
        slices = values.shape[seen.arguments["dim"]] if values.shape else 1
        size = values.num_elements // max(slices, 1)
        return ops.order(size, slices, op="unique", floating=_is_floating(values), extra=max(slices - 1, 0))
    (piece,) = ops.pointwise("compare", max(values.num_elements - 1, 0))
    return (replace(piece, op="unique", kind="gather"),)


@price_of("searchsorted", "bucketize")
def search(seen: Seen) -> tuple[Piece, ...]:
    """The places of values among boundaries, by halving."""
    boundaries = seen.optional("sorted_sequence") or seen.tensor("boundaries")
    size = boundaries.shape[-1] if boundaries.shape else 1
    return ops.search(seen.num_results, size, op=seen.op, floating=_is_floating(boundaries))


@price_of("isin")
def member(seen: Seen) -> tuple[Piece, ...]:
    """Each element held against each, or against all in order where they are many (as torch chooses)."""
    elements = seen.optional("elements")
    tests = seen.optional("test_elements")
    count, others = seen.num_results, tests.num_elements if tests is not None else 1
    if others < 10 * count**0.145:  # aten/src/ATen/native/TensorCompare.cpp, isin_Tensor_Tensor_out
        (piece,) = ops.pointwise("compare", count * others)
        return (replace(piece, op="isin"),)
    floating = elements is None or _is_floating(elements)
    return ops.order(1, count + others, op="isin", floating=floating, extra=count + others)


@price_of("histc")
def histogram(seen: Seen) -> tuple[Piece, ...]:
    """Counts of equal bins; a range of nothing is that of the data."""
    no_range = seen.arguments["min"] == seen.arguments["max"]
    return ops.histogram(seen.tensor("self").num_elements, seen.arguments["bins"], find_range=no_range)


@price_of("histogram", "_histogramdd_bin_edges")
def histogram_of_edges(seen: Seen) -> tuple[Piece, ...]:
    """Counts of equal bins, or of bins between given edges, found by halving."""
    edges = seen.optional("bins")
    values = seen.tensor("self").num_elements
    if edges is not None:
        return ops.search(values, edges.num_elements, op="histogram", floating=_is_floating(edges))
    bins = seen.arguments["bins"]
    weighted = seen.optional("weight") is not None
    count = bins if isinstance(bins, int) else max(bins[1:], default=1)
    return ops.histogram(values, count, weighted=weighted, find_range=seen.arguments.get("range") is None)


@price_of("bincount")
def counts(seen: Seen) -> tuple[Piece, ...]:
    """Weights added by bin: one add each; counting is of integers."""
    weights = seen.optional("weights")
    elements = weights.num_elements if weights is not None else 0
    return tuple(replace(piece, op="bincount", kind="reduction") for piece in ops.pointwise("add", elements))


def _is_floating(meta: TensorMeta) -> bool:
    return meta.dtype.is_floating_point
