"""`einsum`: an equation contracted pair by pair, on the path that torch takes and on the best one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_letters, ascii_lowercase

from torchledger.ops.pattern.contraction import Contraction, Operand, contract, operand_of, summed_over
from torchledger.ops.pattern.equation import Equation, parse_equation
from torchledger.ops.pattern.errors import refuse
from torchledger.ops.pattern.layout import Layout
from torchledger.ops.pattern.path import MOST_SEARCHED, Path, all_at_once, best, left_to_right
from torchledger.ops.piece import Piece


@dataclass(frozen=True, slots=True)
class Einsum:
    """What an equation does.

    Attributes:
        equation: what was asked.
        sizes: of every index.
        names: what the tensors are called in the code: `a`, `b`, `c` and so on.
        operands: where their elements lie.
        path: the pairs that are contracted.
        contractions: each pair, in the order of the path.
        alone: what is summed where there is a single operand.
        result: what comes of it.
        code: the same values in torch, one statement a line; the last one gives `y`. It copies what einsum copies, save
            that after a product element by element the strides of dimensions that are not there may decide otherwise.
        flops_at_once: FLOPs of one loop over all indices.
        element_bytes: bytes of an element.
    """

    equation: Equation
    sizes: Mapping[str, int]
    names: tuple[str, ...]
    operands: tuple[Layout, ...]
    path: Path
    contractions: tuple[Contraction, ...]
    alone: tuple[Piece, ...]
    result: Layout
    code: tuple[str, ...]
    flops_at_once: int
    element_bytes: int

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """All that it costs on every machine, copies included."""
        return (*self.alone, *(piece for each in self.contractions for piece in each.pieces))

    @property
    def contraction_flops(self) -> int:
        """FLOPs of matrix products alone: what `torch.utils.flop_counter` counts."""
        flops: int = sum(piece.work.flops_full for piece in self.pieces if piece.kind == "matmul")
        return flops

    @property
    def copied_bytes(self) -> int:
        """Bytes read and written by copies before products."""
        copied: int = sum(piece.work.bytes_moved for piece in self.pieces if piece.kind == "copy")
        return copied


def einsum(
    text: str,
    sizes: Mapping[str, int],
    *,
    path: str = "left to right",
    strides: Mapping[int, Sequence[int]] | None = None,
    element_bytes: int = 4,
) -> Einsum:
    """What `torch.einsum` does with an equation.

    Args:
        text: the equation, in torch's or in einops's way.
        sizes: of every index.
        path: `left to right`, as torch goes where opt_einsum is not installed, or `best`, which is searched for up to
            `MOST_SEARCHED` operands.
        strides: of operands by their number; contiguous where nothing is given.
        element_bytes: bytes of an element.

    >>> scores = einsum("b s h d, b t h d -> b h s t", {"b": 8, "s": 1024, "t": 1024, "h": 16, "d": 64})
    >>> scores.contraction_flops == 2 * 8 * 16 * 1024 * 1024 * 64, scores.contractions[0].product
    (True, (128, 1024, 1024, 64))
    >>> [operand for operand, _ in scores.contractions[0].copies]  # heads lie between s and d
    ['a', 'b']

    Raises:
        PatternError: equation and sizes do not fit one another; every mistake.
        StrideError: a stride of another number of dimensions.
    """
    equation = parse_equation(text, sizes)
    _check_sizes(equation, sizes)
    layouts = tuple(
        _layout(names, sizes, (strides or {}).get(number)) for number, names in enumerate(equation.operands)
    )
    return _explained(equation, sizes, layouts, _path(path, equation, sizes), element_bytes)


def with_fewer_copies(told: Einsum) -> Einsum | None:
    """The same with other letters, where torch would copy less: it sums in the order of the alphabet.

    In `bshd,hdo->bso` d comes before h, against the order in memory, and both operands are copied; in `abcd,cde->abe`
    nothing is. The letters that are tried follow the order of the indices in one operand, then of those in the others.

    >>> sizes = {"b": 2, "s": 3, "h": 4, "d": 5, "o": 6}
    >>> with_fewer_copies(einsum("bshd,hdo->bso", sizes)).equation.in_letters
    'abcd,cde->abe'
    >>> with_fewer_copies(einsum("bshk,hko->bso", {"b": 2, "s": 3, "h": 4, "k": 5, "o": 6})) is None
    True
    """
    tried = []
    for number in range(len(told.operands)):
        others = told.equation.operands[:number] + told.equation.operands[number + 1 :]
        names = dict.fromkeys(name for operand in (told.equation.operands[number], *others) for name in operand)
        equation = replace(told.equation, letters=dict(zip(names, ascii_letters, strict=False)))
        tried.append(_explained(equation, told.sizes, told.operands, told.path, told.element_bytes))
    fewest = min(tried, key=lambda each: each.copied_bytes)
    return fewest if fewest.copied_bytes < told.copied_bytes else None


def _explained(
    equation: Equation, sizes: Mapping[str, int], layouts: tuple[Layout, ...], path: Path, element_bytes: int
) -> Einsum:
    names = tuple(operand_name(number) for number in range(len(layouts)))
    at_once = all_at_once(equation.operands, equation.output, sizes)
    order = (*equation.output, *equation.summed)
    rest = [operand_of(*each, order) for each in zip(names, equation.operands, layouts, strict=True)]
    if len(rest) == 1:
        alone, pieces = _alone(rest[0], equation, element_bytes)
        line = f"y = {alone.code}"
        return Einsum(equation, sizes, names, layouts, path, (), pieces, alone.layout, (line,), at_once, element_bytes)
    steps = _contracted(rest, path, equation, sizes, element_bytes)
    lines = tuple(f"{each.result.code} = {each.code}" for each in steps)
    result = steps[-1].result.layout
    return Einsum(equation, sizes, names, layouts, path, steps, (), result, lines, at_once, element_bytes)


def _path(asked: str, equation: Equation, sizes: Mapping[str, int]) -> Path:
    """Torch's path where it is asked for, or no other is better, or there are too many operands to search."""
    torchs = left_to_right(equation.operands, equation.output, sizes)
    if asked != "best" or len(equation.operands) > MOST_SEARCHED:
        return torchs
    found = best(equation.operands, equation.output, sizes)
    return found if (found.flops, found.largest) < (torchs.flops, torchs.largest) else torchs


def _contracted(
    rest: list[Operand], path: Path, equation: Equation, sizes: Mapping[str, int], element_bytes: int
) -> tuple[Contraction, ...]:
    order = (*equation.output, *equation.summed)
    contractions = []
    for step, pair in enumerate(path.pairs, start=1):
        left, right = (rest[place] for place in pair)
        rest = [operand for place, operand in enumerate(rest) if place not in pair]
        needed = {*equation.output, *(name for operand in rest for name in operand.names)}
        name = "y" if not rest else f"t{step}"
        contractions.append(contract(left, right, needed, order, sizes, name=name, element_bytes=element_bytes))
        rest.append(contractions[-1].result)
    return tuple(contractions)


def _alone(operand: Operand, equation: Equation, element_bytes: int) -> tuple[Operand, tuple[Piece, ...]]:
    """A single operand: permuted, and summed over what the result does not have."""
    order = (*equation.output, *equation.summed)
    if equation.summed:
        return summed_over(operand, equation.summed, order, element_bytes)
    return operand.permuted(order), ()


def _layout(names: Sequence[str], sizes: Mapping[str, int], stride: Sequence[int] | None) -> Layout:
    shape = tuple(sizes[name] for name in names)
    return Layout.contiguous(shape) if stride is None else Layout(shape, tuple(stride))


def operand_name(number: int) -> str:
    """What an operand is called: `a`, `b`, `c` ... up to `s`, for `t1` is a result on the way and `y` the last.

    >>> operand_name(0), operand_name(18), operand_name(19)
    ('a', 's', 'x19')
    """
    letters = ascii_lowercase[: ascii_lowercase.index("t")]
    return letters[number] if number < len(letters) else f"x{number}"


def _check_sizes(equation: Equation, sizes: Mapping[str, int]) -> None:
    mistakes = [
        f"{name} is no index of {equation.text!r}; it has {', '.join(equation.indices)}"
        for name in sizes
        if name not in equation.indices
    ]
    missing = [name for name in equation.indices if name not in sizes]
    if missing:
        how = " ".join(f"{name}=..." for name in missing)
        mistakes.append(f"{len(missing)} size{'s are' if len(missing) > 1 else ' is'} missing; add {how}")
    refuse(mistakes)
