"""Prices of reductions and scans: rows of elements to one value, or to as many partial ones."""

from __future__ import annotations

from dataclasses import replace

from torchledger import ops
from torchledger.ledger import Work
from torchledger.ops import Piece
from torchledger.tracer.pricing.elements import is_complex
from torchledger.tracer.pricing.rows import along
from torchledger.tracer.pricing.seen import Seen, price_of
from torchledger.tracer.pricing.stored import is_sparse, summed
from torchledger.tracer.pricing.untold import untold

_ROWS = {
    "max": "amax", "min": "amin", "argmax": "amax", "argmin": "amin", "var_mean": "var", "std_mean": "std",
    "_is_all_true": "all", "_is_any_true": "any",
}  # fmt: skip


@price_of("sum", "mean", "amax", "amin", "max", "min", "any", "all", "argmax", "argmin", "prod", "var", "std")
@price_of("var_mean", "std_mean", "nansum", "count_nonzero", "aminmax", "_is_all_true", "_is_any_true", "_aminmax")
def reduction(seen: Seen) -> tuple[Piece, ...]:
    """Rows of elements to one value each; `max` of two tensors is element by element."""
    if seen.optional("other") is not None:
        return ops.pointwise("maximum" if seen.op == "max" else "minimum", seen.num_results)
    if is_sparse(seen):
        return summed(seen) if seen.op == "sum" else untold(seen, "how stored values fall into rows is data")
    name = _ROWS.get(seen.op, seen.op.strip("_"))
    elements = seen.tensor("self").num_elements
    if not elements:
        return (Piece(name, "reduction", Work(), (("rows", seen.num_results), ("columns", 0))),)
    pieces = ops.reduction(name, seen.num_results, elements // max(seen.num_results, 1))
    if not is_complex(seen) or name in {"any", "all", "count_nonzero"}:
        return pieces
    each = 6 if name == "prod" else 2  # a product of complex numbers is 6, a sum is two
    return tuple(replace(piece, work=_times(piece.work, each)) for piece in pieces)


@price_of("_foreach_max")
def foreach_max(seen: Seen) -> tuple[Piece, ...]:
    """The largest element of every tensor of a list."""
    metas = seen.tensors("self")
    compares = sum(meta.num_elements - 1 for meta in metas)
    return (Piece("amax", "reduction", Work.of_flops(compares), (("tensors", len(metas)),)),)


@price_of("linalg_vector_norm", "norm", "native_norm", "linalg__powsum")
def norm(seen: Seen) -> tuple[Piece, ...]:
    """A norm of each row, by its order."""
    elements = seen.tensor("self").num_elements
    order = seen.arguments.get("ord", seen.arguments.get("p", 2))
    roots = not seen.op.endswith("powsum")
    return _norm(2 if order is None else order, [elements // max(seen.num_results, 1)] * seen.num_results, roots=roots)


@price_of("_foreach_norm", "_foreach_powsum")
def foreach_norm(seen: Seen) -> tuple[Piece, ...]:
    """A norm of every tensor of a list, by its order."""
    sizes = [meta.num_elements for meta in seen.tensors("self")]
    return _norm(seen.arguments.get("ord", 2), sizes, roots=seen.op == "_foreach_norm")


@price_of("dist")
def distance(seen: Seen) -> tuple[Piece, ...]:
    """The norm of a difference."""
    elements = max(seen.tensor("self").num_elements, seen.tensor("other").num_elements)
    (piece,) = _norm(seen.arguments["p"], [elements], roots=True)
    return (replace(piece, op="distance", work=piece.work + Work.of_flops(elements)),)


@price_of("logsumexp")
def logsumexp(seen: Seen) -> tuple[Piece, ...]:
    """Largest n - 1, differences n, exp n, sum n - 1, a logarithm, + largest, in a row of n."""
    rows, elements = seen.num_results, seen.tensor("self").num_elements
    work = Work.of_flops(3 * elements - rows, transcendentals=elements + rows)
    return (Piece("logsumexp", "reduction", work, (("rows", rows), ("elements", elements))),)


@price_of("cumsum", "cumprod", "cummax", "cummin", "cumsum_", "cumprod_", "_cummax_helper", "_cummin_helper")
def scan(seen: Seen) -> tuple[Piece, ...]:
    """Partial sums, products, largest ones: n - 1 operations in a row of n."""
    rows, columns = along(seen.tensor("self").shape, seen.arguments["dim"])
    (piece,) = ops.reduction("sum", rows, columns)
    each = (6 if "prod" in seen.op else 2) if is_complex(seen) else 1
    name = seen.op.strip("_").removesuffix("_helper")
    return (replace(piece, op=name, work=_times(piece.work, each)),)


@price_of("logcumsumexp", "_logcumsumexp")
def log_scan(seen: Seen) -> tuple[Piece, ...]:
    """Partial log Σ exp: n - 1 times max + log1p(exp(-|difference|)), 4 FLOPs and 2 transcendentals."""
    rows, columns = along(seen.tensor("self").shape, seen.arguments["dim"])
    (piece,) = ops.elementwise("logaddexp", rows * max(columns - 1, 0))
    return (Piece("logcumsumexp", "reduction", piece.work, (("rows", rows), ("columns", columns))),)


@price_of("trace")
def trace(seen: Seen) -> tuple[Piece, ...]:
    """The sum of a diagonal."""
    return ops.reduction("sum", 1, min(seen.tensor("self").shape))


@price_of("segment_reduce", "_segment_reduce_backward")
def segments(seen: Seen) -> tuple[Piece, ...]:
    """Runs of rows to one row each: an add an element, less one a run."""
    elements = seen.first.num_elements
    kept = 0 if seen.op.endswith("backward") else seen.num_results
    work = Work.of_flops(max(elements - kept, 0))
    return (Piece("segment_reduce", "reduction", work, (("elements", elements),)),)


@price_of("equal", "allclose")
def compared(seen: Seen) -> tuple[Piece, ...]:
    """Whether two tensors are alike: a compare an element, and with a tolerance |a - b| ≤ ε + r·|b|, 6."""
    elements = seen.tensor("self").num_elements
    work = Work.of_flops((6 if seen.op == "allclose" else 1) * elements)
    return (Piece(seen.op, "reduction", work, (("elements", elements),)),)


def _norm(order: float | str, sizes: list[int], *, roots: bool) -> tuple[Piece, ...]:
    """Norms of rows of these sizes: squares and a root; |a| (sum, largest); powers and a root of another order."""
    elements, rows = sum(sizes), len(sizes)
    shape = (("rows", rows), ("elements", elements))
    is_plain = order in {0, 1, float("inf"), float("-inf")}
    powers = 0 if is_plain or order == 2 else elements
    work = Work.of_flops(2 * elements - rows, transcendentals=powers + (rows if roots and not is_plain else 0))
    return (Piece("norm", "reduction", work, shape),)


def _times(work: Work, times: int) -> Work:
    """FLOPs of numbers that take so many operations each; transcendentals of their two parts."""
    return Work.of_flops(work.flops_full * times, transcendentals=work.transcendentals * 2)
