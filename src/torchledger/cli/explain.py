"""`torchledger explain`: what a pattern of axes does to tensors, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from torchledger import formats, machine
from torchledger.cli.complete import chip_names
from torchledger.cli.documented import Documented
from torchledger.cli.named_path import NamedPath
from torchledger.cli.output import json_option, show, show_json
from torchledger.formats import IntegerFormat
from torchledger.ops.pattern import (
    PatternError,
    Roofed,
    Transformed,
    einsum,
    names_in,
    operand_name,
    read_shape,
    read_sizes,
    roofed,
    transform,
    view,
)
from torchledger.ops.pattern.path import MOST_SEARCHED
from torchledger.ops.piece import Piece
from torchledger.view.explain import einsum_screen, transformed_screen, viewed_screen
from torchledger.view.explain_record import einsum_record, transformed_record, viewed_record

Function = TypeVar("Function", bound=Callable[..., Any])

_CONTEXT = {"ignore_unknown_options": True}
_BYTES = "each operand is read once and each result written once; strides count elements"
_CONTIGUOUS = "the tensor is contiguous; --stride says otherwise"
_LEFT_TO_RIGHT = "torch.einsum goes left to right unless opt_einsum is installed"
#: What torch.sum makes of integers.
_INT64_BYTES = 8

#: Formats whose tensors torch sums and multiplies.
_COMPUTED = ("FP64", "FP32", "TF32", "FP16", "BF16", "INT8")

_NOT_SEARCHED = f"more than {MOST_SEARCHED} operands: left to right, no other order was searched"


@click.group()
def command() -> None:
    """What a rearrange, reduce, repeat, einsum or view does: view or copy, FLOPs, bytes, the torch code.

    Patterns are those of einops, equations those of torch.einsum or einops. Sizes are `name=size`.
    """


def _options(function: Function) -> Function:
    """The options that every explanation has."""
    for add in (
        json_option,
        click.option(
            "--catalog",
            "own_files",
            multiple=True,
            type=NamedPath(exists=True, dir_okay=False, path_type=Path),
            help="A TOML file with chips of your own (may be repeated).",
        ),
        click.option(
            "--on", "chip", metavar="CHIP", shell_complete=chip_names, help="Hold it under the roofline of a chip."
        ),
        click.option("--dtype", default="fp32", show_default=True, help="Number format of the elements."),
        click.argument("sizes", nargs=-1),
    ):
        function = add(function)
    return function


def _layout_options(function: Function) -> Function:
    """The options that say what tensor a pattern meets."""
    for add in (
        click.option("--stride", help="Strides of the tensor, in elements (default: contiguous)."),
        click.option("--shape", help="Shape of the tensor, instead of some sizes, or for `...`."),
    ):
        function = add(function)
    return function


@command.command(
    "rearrange",
    cls=Documented,
    context_settings=_CONTEXT,
    examples=(
        'torchledger explain rearrange "b s (h d) -> b h s d" b=4 s=1024 h=8 d=64           a view',
        'torchledger explain rearrange "b h s d -> b s (h d)" b=4 s=1024 h=8 d=64 --dtype bf16   a copy, and why',
        'torchledger explain rearrange "n c h w -> n h w c" --shape "8 64 32 32" --on h100',
    ),
)
@click.argument("pattern")
@_options
@_layout_options
def rearrange_command(pattern: str, sizes: tuple[str, ...], **told: Any) -> None:
    """Whether a rearrangement is a view or a copy, and what it moves."""
    _transform(pattern, "rearrange", sizes, told)


@command.command(
    "repeat",
    cls=Documented,
    context_settings=_CONTEXT,
    examples=(
        'torchledger explain repeat "b k s d -> b (k g) s d" b=4 k=8 g=4 s=1024 d=128   keys of a group, copied',
        'torchledger explain repeat "s -> b s" b=4 s=1024                           a view: stride 0',
    ),
)
@click.argument("pattern")
@_options
@_layout_options
def repeat_command(pattern: str, sizes: tuple[str, ...], **told: Any) -> None:
    """Whether a repetition is a view (stride 0) or a copy, and what it moves."""
    _transform(pattern, "repeat", sizes, told)


@command.command(
    "reduce",
    cls=Documented,
    context_settings=_CONTEXT,
    examples=(
        'torchledger explain reduce "b s d -> b d" mean b=8 s=1024 d=768',
        'torchledger explain reduce "b c (h 2) (w 2) -> b c h w" max b=8 c=64 h=16 w=16 --dtype fp16',
    ),
)
@click.argument("pattern")
@click.argument("reduction")
@_options
@_layout_options
def reduce_command(pattern: str, reduction: str, sizes: tuple[str, ...], **told: Any) -> None:
    """FLOPs and bytes of a reduction: min, max, sum, mean, prod, any or all over the axes that go."""
    if reduction in {"rearrange", "repeat"}:
        raise PatternError(f"{reduction!r} is no reduction; torchledger explain {reduction} explains it")
    _transform(pattern, reduction, sizes, told)


def _transform(pattern: str, operation: str, sizes: tuple[str, ...], told: dict[str, Any]) -> None:
    known = read_sizes(sizes)
    shape, stride = _read_all(known, (told["shape"], 1), (told["stride"], 0))
    of_shape = names_in(told["shape"] or "") - names_in(pattern)
    of_axes = {name: size for name, size in known.items() if name not in of_shape}
    is_integer = isinstance(formats.find(told["dtype"]), IntegerFormat)
    if is_integer and operation == "mean":
        raise PatternError("torch and einops take means of floating-point numbers only; name another --dtype, or sum")
    answer: Transformed = transform(
        pattern,
        operation,
        of_axes,
        shape=shape,
        stride=stride,
        element_bytes=_element_bytes(told["dtype"]),
        summed_bytes=_INT64_BYTES if is_integer else None,
    )
    roofs = _roofs(answer.pieces, told)
    assumptions = [
        _BYTES,
        *([_CONTIGUOUS] if stride is None else []),
        *_without_kernels(answer.pieces, told, operation),
    ]
    if told["as_json"]:
        question = {"pattern": pattern, "operation": operation, "sizes": answer.sizes, "dtype": told["dtype"]}
        name = operation if operation in {"rearrange", "repeat"} else "reduce"
        show_json(f"explain.{name}", question, transformed_record(answer, roofs), assumptions)
    else:
        show(transformed_screen(answer, roofs, assumptions))


@command.command(
    "einsum",
    cls=Documented,
    context_settings=_CONTEXT,
    examples=(
        'torchledger explain einsum "b s h d, b t h d -> b h s t" b=8 s=1024 t=1024 h=16 d=64 --dtype bf16 --on h100',
        'torchledger explain einsum "ij,jk,kl->il" i=1000 j=10 k=1000 l=10     three operands: which pair first',
        'torchledger explain einsum "ij,jk->ik" i=512 j=512 k=512 --stride "a: 1 512"   the first one transposed',
    ),
)
@click.argument("equation")
@_options
@click.option(
    "--path",
    type=click.Choice(("best", "left-to-right")),
    default="best",
    show_default=True,
    help="Order of three or more operands: the fewest FLOPs, or torch's own.",
)
@click.option("--stride", "strides", multiple=True, help='Strides of an operand: "a: 4096 1" (may be repeated).')
def einsum_command(equation: str, sizes: tuple[str, ...], path: str, strides: tuple[str, ...], **told: Any) -> None:
    """FLOPs, bytes, intensity, order, matrix products and copies of a contraction.

    Operands are called a, b, c and so on.
    """
    known = read_sizes(sizes)
    answer = einsum(
        equation,
        known,
        path=path.replace("-", " "),
        strides=_strides(strides, equation),
        element_bytes=_element_bytes(told["dtype"]),
    )
    roofs = _roofs(answer.pieces, told)
    assumptions = [_BYTES, *([] if strides else ["operands are contiguous; --stride says otherwise"])]
    assumptions.extend(_without_kernels(answer.pieces, told, "einsum"))
    if len(answer.operands) > 2:
        assumptions.append(_LEFT_TO_RIGHT)
    if len(answer.operands) > MOST_SEARCHED and path == "best":
        assumptions.append(_NOT_SEARCHED)
    if told["as_json"]:
        question = {"equation": equation, "sizes": known, "dtype": told["dtype"], "path": path}
        show_json("explain.einsum", question, einsum_record(answer, roofs), assumptions)
    else:
        show(einsum_screen(answer, roofs, assumptions))


def _strides(texts: Sequence[str], equation: str) -> dict[int, tuple[int, ...]]:
    """Strides by the number of their operand."""
    names = [operand_name(number) for number in range(equation.partition("->")[0].count(",") + 1)]
    found: dict[int, tuple[int, ...]] = {}
    for text in texts:
        name, colon, stride = text.partition(":")
        if not colon or name.strip() not in names:
            raise PatternError(f'--stride {text!r} names no operand; write "a: 4096 1" with one of {", ".join(names)}')
        if names.index(name.strip()) in found:
            raise PatternError(f"--stride tells operand {name.strip()} twice; leave one out")
        found[names.index(name.strip())] = read_shape(stride, {}, least=0)
    return found


@command.command(
    "view",
    cls=Documented,
    context_settings=_CONTEXT,
    examples=(
        'torchledger explain view "2 3 4" "6 4"                     works',
        'torchledger explain view "2 3 4" "6 4" --stride "12 1 3"   fails: why, and what works',
        'torchledger explain view "b s h d" "b s h*d" b=4 s=1024 h=8 d=64',
    ),
)
@click.argument("shape")
@click.argument("new_shape")
@_options
@click.option("--stride", help="Strides of the tensor, in elements (default: contiguous).")
def view_command(shape: str, new_shape: str, sizes: tuple[str, ...], stride: str | None, **told: Any) -> None:
    """Whether `view` has a shape, why not, and what works. One new size may be -1."""
    known = read_sizes(sizes)
    unused = [name for name in known if name not in names_in(f"{shape} {new_shape} {stride or ''}")]
    if unused:
        raise PatternError(f"{', '.join(unused)} stands in neither shape; leave the size out")
    before, wanted, steps = _read_all(known, (shape, 1), (new_shape, -1), (stride, 0))
    answer = view(before or (), wanted or (), stride=steps, element_bytes=_element_bytes(told["dtype"]))
    roofs = _roofs(answer.pieces, told)
    assumptions = [] if stride is not None else [_CONTIGUOUS]
    if told["as_json"]:
        question = {"shape": shape, "new_shape": new_shape, "sizes": known, "stride": stride, "dtype": told["dtype"]}
        show_json("explain.view", question, viewed_record(answer, roofs), assumptions)
    else:
        show(viewed_screen(answer, roofs, assumptions))


def _read_all(known: Mapping[str, int], *texts: tuple[str | None, int]) -> list[tuple[int, ...] | None]:
    """Several shapes, each with the least that may stand in it; what is wrong with any of them in one message."""
    found: list[tuple[int, ...] | None] = []
    mistakes = []
    for text, least in texts:
        try:
            found.append(None if text is None else read_shape(text, known, least=least))
        except PatternError as error:
            mistakes.append(str(error))
    if mistakes:
        raise PatternError("\n".join(mistakes))
    return found


def _without_kernels(pieces: Sequence[Piece], told: Mapping[str, Any], operation: str) -> Iterator[str]:
    """That torch does not compute in a format, where something is computed; only any and all take every format."""
    name = formats.find(told["dtype"]).name
    computes = operation not in {"any", "all"} and any(piece.kind in {"matmul", "reduction"} for piece in pieces)
    if computes and name not in _COMPUTED:
        yield f"torch's CPU kernels have no sum, maximum or bmm of {name}: the code is for tensors of a wider format"


def _element_bytes(dtype: str) -> int:
    """Bytes of an element; formats that pack several into a byte have no strides."""
    many = 1024
    held = formats.tensor_bytes((many,), dtype)
    if held % many:
        raise PatternError(f"elements of {formats.find(dtype).name} share bytes or scales, so they have no strides")
    return held // many


def _roofs(pieces: Sequence[Piece], told: dict[str, Any]) -> Roofed | None:
    if told["chip"] is None:
        return None
    catalog = machine.load(told["own_files"]) if told["own_files"] else None
    return roofed(pieces, machine.get(told["chip"], catalog=catalog), formats.find(told["dtype"]).name)
