"""How messages name types and values: "a whole number", "'bf16'", "a table"."""

import enum
import types
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin

from torchledger.units import Amount

_SCALARS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path in quotes",
    type(None): '"none"',
    Any: "anything",
}
_LONGEST_SHOWN = 60


def amount_of(kind: Any) -> Amount | None:
    """The unit mark of an `Annotated` type, if it has one."""
    marks = kind.__metadata__ if get_origin(kind) is Annotated else ()
    return next((mark for mark in marks if isinstance(mark, Amount)), None)


def bare(kind: Any) -> Any:
    """The type under `Annotated` and `NewType`."""
    while True:
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        elif isinstance(kind, NewType):
            kind = kind.__supertype__
        else:
            return kind


def members(kind: Any) -> tuple[Any, ...]:
    """The members of a union; the type itself if it is none."""
    kind = bare(kind) if amount_of(kind) is None else kind
    return get_args(kind) if get_origin(kind) in {Union, types.UnionType} else (kind,)


def choices(kind: Any) -> tuple[Any, ...]:
    """The values that a `Literal` or an enum allows; empty for other types."""
    kind = bare(kind)
    if get_origin(kind) is Literal:
        return get_args(kind)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return tuple(member.value for member in kind)
    return ()


def expected(kind: Any) -> str:
    """What a field of this type wants, as the object of "expected".

    >>> expected(int | Literal["auto"]), expected(tuple[float, ...])
    ("a whole number or 'auto'", 'a list of numbers')
    """
    amount = amount_of(kind)
    if amount is not None:
        return f"{amount.quantity.name} ({amount.quantity.accepts})"
    alternatives = [member for member in members(kind) if member is not type(None)]
    if len(alternatives) > 1:
        return " or ".join(expected(member) for member in alternatives)
    kind = bare(alternatives[0])
    allowed = choices(kind)
    if allowed:
        return " or ".join(shown(value) for value in allowed)
    if is_dataclass(kind):
        return f"a table ({kind.__name__ if isinstance(kind, type) else kind})"
    origin = get_origin(kind) or kind
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "a table"
    if isinstance(origin, type) and issubclass(origin, Sequence) and origin is not str:
        return _expected_list(origin, get_args(kind))
    return _SCALARS[kind]


def _expected_list(origin: type, items: tuple[Any, ...]) -> str:
    if not items:
        return "a list"
    if origin is tuple and items[-1] is not Ellipsis:
        return f"a list of {len(items)} ({', '.join(expected(item) for item in items)})"
    plural = {bool: "true or false", int: "whole numbers", float: "numbers", str: "texts", Path: "paths"}
    return f"a list of {plural.get(items[0]) or f'({expected(items[0])})'}"


def shown(value: Any) -> str:
    """A raw value as a message shows it.

    >>> shown("bf16"), shown(True), shown({"a": 1})
    ("'bf16'", 'true', 'a table')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, str | int | float):
        text = repr(value)
        return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
    return f"{value} (a {type(value).__name__})"
