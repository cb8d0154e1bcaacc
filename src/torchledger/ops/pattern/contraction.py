"""What `torch.einsum` does to two operands: sums, copies, one batched matrix product, and where its result lies.

The rules are those of `einsum` and `sumproduct_pair` in PyTorch's aten/src/ATen/native/Linear.cpp: an index that only
one operand has and nobody needs is summed at once; then the left operand becomes [batch, rows, summed] and the right
one [batch, summed, columns] by `permute` and `reshape`, which copies where strides allow no view; `bmm` multiplies.
Without an index to sum over it is a product element by element.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from torchledger.ops.matmul import matmul
from torchledger.ops.pattern.layout import Layout, product_layout
from torchledger.ops.pattern.transform import Step, reshaped
from torchledger.ops.pattern.viewing import copied
from torchledger.ops.piece import Piece, moved
from torchledger.ops.pointwise import pointwise
from torchledger.ops.reduction import reduction


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor on the way.

    Attributes:
        code: what it is called.
        names: its indices, outermost first, each once.
        layout: where its elements lie.
        aligned: the same with a dimension for every index of the equation, in torch's order; those that it lacks are
            of size 1, and their strides decide where the elements of a product lie.
    """

    code: str
    names: tuple[str, ...]
    layout: Layout
    aligned: Layout

    @classmethod
    def of(cls, code: str, names: Sequence[str], aligned: Layout, order: Sequence[str]) -> Operand:
        """A tensor of which all dimensions are known, the ones of an equation that it has."""
        places = [order.index(name) for name in names]
        return cls(code, tuple(names), aligned.permuted(places), aligned)

    @property
    def indices(self) -> frozenset[str]:
        """Its indices of more than one element: torch takes a size of 1 for none."""
        return frozenset(name for name, size in zip(self.names, self.layout.shape, strict=True) if size > 1)

    def permuted(self, names: Sequence[str]) -> Operand:
        """Its dimensions in another order."""
        order = [self.names.index(name) for name in names]
        if order == sorted(order):
            return self
        listed = ", ".join(map(str, order))
        layout = self.layout.permuted(order)
        return Operand(f"{self.code}.permute({listed})", tuple(names), layout, self.aligned)

    def reshaped(self, shape: Sequence[int], element_bytes: int) -> tuple[str, Step | None]:
        """The code of it in another shape, and the step where one is needed."""
        if tuple(shape) == self.layout.shape:
            return self.code, None
        step = reshaped(self.layout, shape, element_bytes, self.names)
        listed = ", ".join(map(str, shape)) or "()"
        return f"{self.code}.reshape({listed})", step


@dataclass(frozen=True, slots=True)
class Contraction:
    """One pair of operands, contracted.

    Attributes:
        left, right: what the operands are called.
        result: what comes of it.
        code: the same in torch.
        compute: sums, and the product.
        copies: what `reshape` moves before the product, with the operand and the reason.
        kernel_copies: what cuBLAS's caller moves besides, on CUDA: an operand with neither of its last strides 1
            (`prepare_batch_matrix_for_cublas` in PyTorch's aten/src/ATen/native/cuda/Blas.cpp).
        product: sizes [batch, rows, columns, summed] of the matrix product; nothing where there is none.
    """

    left: str
    right: str
    result: Operand
    code: str
    compute: tuple[Piece, ...]
    copies: tuple[tuple[str, Step], ...]
    kernel_copies: tuple[tuple[str, Piece], ...]
    product: tuple[int, int, int, int] | None

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """All that it costs on every machine, copies first."""
        return (*(piece for _, step in self.copies for piece in step.pieces), *self.compute)

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        flops: int = sum(piece.work.flops_full for piece in self.compute)
        return flops


def contract(
    left: Operand,
    right: Operand,
    needed: Collection[str],
    order: Sequence[str],
    sizes: Mapping[str, int],
    *,
    name: str,
    element_bytes: int,
) -> Contraction:
    """Contract two operands.

    Args:
        left: first operand.
        right: second operand.
        needed: indices of the whole result and of the operands that are left.
        order: every index as torch orders dimensions: those of the whole result, then those that are summed.
        sizes: of the indices.
        name: what the result is called.
        element_bytes: bytes of an element.
    """
    parts = []
    compute: list[Piece] = []
    for one, other in ((left, right), (right, left)):
        summed_one, pieces = _summed_alone(one, other, needed, order, element_bytes)
        parts.append(summed_one)
        compute.extend(pieces)
    one, two = parts
    names = tuple(each for each in order if each in one.names or each in two.names)
    both = one.indices & two.indices
    summed = tuple(each for each in names if each in both and each not in needed)
    kept = tuple(each for each in names if each in needed)
    if not summed:
        made, pieces = _multiplied(one, two, kept, sizes, element_bytes)
        result = Operand.of(name, kept, product_layout(one.aligned, two.aligned), order)
        return Contraction(left.code, right.code, result, made, (*compute, *pieces), (), (), None)
    if _is_swapped(one, two, summed, order):
        one, two, left, right = two, one, right, left
    groups = (
        tuple(each for each in kept if each in both),
        tuple(each for each in kept if each in one.indices and each not in both),
        tuple(each for each in kept if each not in one.indices),
        summed,
    )
    product = _as_product((one, left.code), (two, right.code), groups, sizes, element_bytes)
    result = Operand.of(name, kept, _product_aligned(groups, order, sizes), order)
    code = product.code + _opened(groups, kept, sizes)
    return replace(product, result=result, code=code, compute=(*compute, *product.compute))


def _as_product(
    one: tuple[Operand, str],
    two: tuple[Operand, str],
    groups: Sequence[Sequence[str]],
    sizes: Mapping[str, int],
    element_bytes: int,
) -> Contraction:
    """Two operands with the names that they came with, as one `bmm`, its result still [batch, rows, columns]."""
    batch, rows, columns, summed = groups
    B, M, N, K = (prod(sizes[each] for each in group) for group in groups)
    first = _matrix(*one, (batch, rows, summed), (B, M, K), element_bytes)
    second = _matrix(*two, (batch, summed, columns), (B, K, N), element_bytes)
    flat = Layout.contiguous((B, M, N))
    return Contraction(
        one[1],
        two[1],
        Operand("", (), flat, flat),
        f"torch.bmm({first.code}, {second.code})",
        matmul(B, M, N, K, element_bytes=element_bytes),
        (*first.copies, *second.copies),
        (*first.kernel_copies, *second.kernel_copies),
        (B, M, N, K),
    )


def _is_swapped(one: Operand, two: Operand, summed: Collection[str], order: Sequence[str]) -> bool:
    """Whether torch takes the right operand for the left one, so that the product comes out in the result's order.

    That is where all dimensions that only the left one has come after all others that it does not have, those of one
    element included (`swap_lo_ro` in `sumproduct_pair`).
    """
    rows = [place for place, each in enumerate(order) if each in one.indices and each not in two.indices]
    columns = [place for place, each in enumerate(order) if each not in one.indices and each not in summed]
    return bool(rows and columns) and columns[-1] < rows[0]


def operand_of(code: str, indices: Sequence[str], layout: Layout, order: Sequence[str]) -> Operand:
    """A tensor of an equation, each index once: one that stands twice walks the diagonal, which is a view.

    Args:
        code: what it is called.
        indices: one a dimension.
        layout: where its elements lie.
        order: every index of the equation, as torch orders dimensions.
    """
    names = list(indices)
    place = 0
    while place < len(names):
        first = names.index(names[place])
        if first == place:
            place += 1
            continue
        layout = layout.diagonal(first, place)
        code += f".diagonal(0, {first}, {place}).movedim(-1, {first})"
        del names[place]
    found = {name: (size, step) for name, size, step in zip(names, layout.shape, layout.stride, strict=True)}
    aligned = [found.get(name, (1, 1)) for name in order]  # `unsqueeze` at the end gives a stride of 1
    shape, stride = tuple(size for size, _ in aligned), tuple(step for _, step in aligned)
    return Operand(code, tuple(names), layout, Layout(shape, stride))


def summed_over(
    operand: Operand, gone: Sequence[str], order: Sequence[str], element_bytes: int
) -> tuple[Operand, tuple[Piece, ...]]:
    """The sum over some indices: contiguous, in torch's order of those that stay."""
    operand = operand.permuted([each for each in order if each in operand.names])
    places = [place for place, each in enumerate(operand.names) if each in gone]
    stay = [place for place in range(len(operand.names)) if place not in places]
    layout = Layout.contiguous([operand.layout.shape[place] for place in stay])
    listed = str(places[0]) if len(places) == 1 else f"({', '.join(map(str, places))})"
    pieces = moved(
        reduction("sum", layout.num_elements, operand.layout.num_elements // layout.num_elements),
        bytes_read=element_bytes * operand.layout.num_distinct,
        bytes_written=element_bytes * layout.num_elements,
    )
    sizes = zip(order, operand.aligned.shape, strict=True)
    aligned = Layout.contiguous([1 if name in gone else size for name, size in sizes])
    names = tuple(operand.names[place] for place in stay)
    return Operand(f"{operand.code}.sum(dim={listed})", names, layout, aligned), pieces


def _summed_alone(
    one: Operand, other: Operand, needed: Collection[str], order: Sequence[str], element_bytes: int
) -> tuple[Operand, tuple[Piece, ...]]:
    """An operand summed over what nobody else has, its dimensions in torch's order."""
    gone = [each for each in one.names if each in one.indices and each not in other.indices and each not in needed]
    return summed_over(one, gone, order, element_bytes) if gone else (one, ())


def _multiplied(
    one: Operand, two: Operand, kept: Sequence[str], sizes: Mapping[str, int], element_bytes: int
) -> tuple[str, tuple[Piece, ...]]:
    """Element by element: dimensions that an operand lacks are of size 1 in it."""
    codes = []
    for operand in (one, two):
        lost = [each for each in operand.names if each not in kept]  # of one element
        ordered = operand.permuted([*lost, *(each for each in kept if each in operand.names)])
        shape = [sizes[each] if each in operand.names else 1 for each in kept]
        codes.append(ordered.reshaped(shape, element_bytes)[0])
    elements = prod(sizes[each] for each in kept)
    pieces = moved(
        pointwise("mul", elements),
        bytes_read=element_bytes * (one.layout.num_distinct + two.layout.num_distinct),
        bytes_written=element_bytes * elements,
    )
    return " * ".join(codes), pieces


@dataclass(frozen=True, slots=True)
class _Matrix:
    """An operand of `bmm`, and what has to be moved for it."""

    code: str
    copies: tuple[tuple[str, Step], ...]
    kernel_copies: tuple[tuple[str, Piece], ...]


def _matrix(
    operand: Operand, source: str, groups: Sequence[Sequence[str]], shape: Sequence[int], element_bytes: int
) -> _Matrix:
    """Three groups of indices as three dimensions."""
    inside = [each for group in groups for each in group if each in operand.names]
    ones = [each for each in operand.names if each not in inside]
    ordered = operand.permuted([*ones, *inside])
    code, step = ordered.reshaped(shape, element_bytes)
    layout = ordered.layout if step is None else step.after
    copies = () if step is None or step.is_view else ((source, step),)
    moves = () if _suits_blas(layout) else copied(layout, element_bytes)
    return _Matrix(code, copies, tuple((source, piece) for piece in moves))


def _opened(groups: Sequence[Sequence[str]], kept: Sequence[str], sizes: Mapping[str, int]) -> str:
    """The code that gives a product its dimensions back, in the order of the result."""
    batch, rows, columns, _ = groups
    made = (*batch, *rows, *columns)
    flat = tuple(prod(sizes[each] for each in group) for group in (batch, rows, columns))
    shape = tuple(sizes[each] for each in made)
    order = [made.index(each) for each in kept]
    view = "" if shape == flat else f".view({', '.join(map(str, shape)) or '()'})"
    permute = "" if order == sorted(order) else f".permute({', '.join(map(str, order))})"
    return view + permute


def _product_aligned(groups: Sequence[Sequence[str]], order: Sequence[str], sizes: Mapping[str, int]) -> Layout:
    """Where a matrix product lies, seen with all dimensions: batch, rows, ones for what was summed, all others."""
    batch, rows, columns, summed = groups
    others = [each for each in order if each not in batch and each not in rows and each not in summed]
    made = [*batch, *rows, *summed, *others]
    shape = [sizes[each] if each in batch or each in rows or each in columns else 1 for each in made]
    flat = Layout.contiguous([prod(sizes[each] for each in group) for group in (batch, rows, columns)])
    opened = flat.viewed(shape)
    assert opened is not None, "what is contiguous can be viewed in any shape"
    return opened.permuted([made.index(each) for each in order])


def _suits_blas(layout: Layout) -> bool:
    """Whether a batch of matrices has rows or columns that BLAS can walk: one step of 1, the other past its length."""
    _, rows, columns = layout.shape
    _, row_step, column_step = layout.stride
    by_rows = column_step == 1 and row_step >= max(1, columns)
    by_columns = row_step == 1 and column_step >= max(1, rows)
    return by_rows or by_columns or (layout.is_contiguous and 0 not in (row_step, column_step))
