"""Shapes as text: numbers, names and sums or products of them, as jaxtyping writes them; and sizes of names.

`8 1024 64`, `(8, 1024, 64)`, `b s h*d`, `b=8 s=1024 64`, `s-1` are shapes. What says only that something is there
(`...`, `*batch`, `_`) has no size, and is refused by name.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping

from torchledger.ops.pattern.errors import PatternError, refuse
from torchledger.units import UnitError, parse_count

_OPERATIONS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_NAME = re.compile(r"[^\W\d]\w*")
_SEPARATOR = re.compile(r"[\s,]+|(?<=\d)[x×](?=\d)")


def read_sizes(words: Iterable[str]) -> dict[str, int]:
    """Sizes of axes from words like `h=8`, in any spelling of a count.

    >>> read_sizes(["b=4", "s=1k"])
    {'b': 4, 's': 1000}

    Raises:
        PatternError: a word is no `name=size`, a name has two sizes, a size is below 1; every mistake.
    """
    sizes: dict[str, int] = {}
    mistakes = []
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip()
        if not equals or not name:
            mistakes.append(f"{word!r} is no size of an axis; write name=size, as in h=8")
            continue
        try:
            size = parse_count(text)
        except UnitError as error:
            mistakes.append(f"{name}: {error}")
            continue
        if size < 1:
            mistakes.append(f"{name}={text}: an axis has at least 1 element")
        elif sizes.setdefault(name, size) != size:
            mistakes.append(f"{name} is given twice, as {sizes[name]:,} and {size:,}")
    refuse(mistakes)
    return sizes


def read_shape(text: str, sizes: Mapping[str, int], *, least: int = 1) -> tuple[int, ...]:
    """The sizes that a text says, names replaced by theirs.

    Args:
        text: a shape; nothing is the shape of a scalar.
        sizes: of the names; `name=size` inside the text adds to them.
        least: the smallest number that may stand in it: 1 for a shape, 0 for strides, -1 where one size may be open.

    >>> read_shape("b s h*d", {"b": 2, "s": 3, "h": 4, "d": 5})
    (2, 3, 20)
    >>> read_shape("torch.Size([2, 3])", {}), read_shape("rows=4 2*rows", {})
    ((2, 3), (4, 8))

    Raises:
        PatternError: a word is no size, or a name has none; every mistake.
    """
    known = dict(sizes)
    shape: list[int] = []
    mistakes: list[str] = []
    for word in _SEPARATOR.split(text.strip().removeprefix("torch.Size").strip("()[] ")):
        if not word:
            continue
        name, equals, value = word.rpartition("=")
        try:
            size = _value(value, known, text)
        except PatternError as error:
            mistakes.append(str(error))
            continue
        if size < least:
            mistakes.append(f"{word!r} in {text!r} is {size:,}; it must be at least {least}")
        if equals:
            known[name] = size
        shape.append(size)
    refuse(mistakes)
    return tuple(shape)


def names_in(text: str) -> frozenset[str]:
    """The names that stand in a shape or a pattern.

    >>> sorted(names_in("b s h*d 64"))
    ['b', 'd', 'h', 's']
    """
    return frozenset(_NAME.findall(text))


def _value(word: str, known: Mapping[str, int], text: str) -> int:
    if word in {"...", "_"} or word.startswith("*"):
        raise PatternError(f"{word!r} in {text!r} says that there is something and not how much; write its size")
    try:
        return _evaluate(ast.parse(word.lstrip("#?"), mode="eval").body, known)
    except KeyError as error:
        raise PatternError(f"{error.args[0]} in {text!r} has no size; write {error.args[0]}=...") from None
    except (SyntaxError, TypeError, ZeroDivisionError, RecursionError):
        raise PatternError(f"{word!r} in {text!r} is no size: a number, a name, or + - * // of them") from None


def _evaluate(node: ast.expr, known: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            return known[name]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_evaluate(inner, known)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            return _OPERATIONS[type(op)](_evaluate(left, known), _evaluate(right, known))
    raise TypeError
