"""Typed values back to tables and TOML, so that what was resolved can be saved and read again."""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from torchledger.config.place import Place
from torchledger.config.structure import NONE, default_of, field_types, settable_fields, switches_off


def to_dict(value: Any) -> dict[str, Any]:
    """A dataclass as a plain table. Every field is written, except nothing where nothing is the default.

    Raises:
        TypeError: our mistake: the value holds something that no configuration can.
    """
    if not is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"expected a dataclass instance, got {value!r}")
    return _table(value, None)


def _table(value: Any, base: Any) -> dict[str, Any]:
    """The table that gives `value` when read over `base`, the default of the field that it stands in."""
    cls: Any = type(value)
    base = base if type(base) is cls else None
    table: dict[str, Any] = {}
    for field in settable_fields(cls):
        given = getattr(value, field.name)
        default = getattr(base, field.name) if base is not None else default_of(field)
        if given is None and default is None:
            continue
        if given is None and not switches_off(field_types(cls)[field.name]):
            raise TypeError(f"{cls.__name__}.{field.name} is None, which TOML cannot say of a field of text")
        table[field.name] = plain(given, default)
    return table


def plain(value: Any, default: Any = None) -> Any:
    """A field's value as TOML has it; a dataclass is written over `default`, what its field has without a table."""
    if value is None:
        return NONE
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if is_dataclass(value):
        return _table(value, default)
    raise TypeError(f"a configuration cannot hold {value!r}")


def to_toml(value: Any) -> str:
    """A dataclass as TOML; `load` of the text gives an equal value.

    Raises:
        TypeError: our mistake: the value holds something that no configuration can.
    """
    import tomli_w  # loads decimal, which reading a configuration does not need

    return tomli_w.dumps(to_dict(value))


def leaves(value: Any) -> Iterator[tuple[Place, Any]]:
    """Every value that is no table, with its place; an empty table is a leaf, a list is one too.

    Fields that hold nothing are included, so that `config show` can say so.
    """
    yield from _leaves(value, ())


def _leaves(value: Any, place: Place) -> Iterator[tuple[Place, Any]]:
    if is_dataclass(value) and not isinstance(value, type):
        items = [(field.name, getattr(value, field.name)) for field in settable_fields(type(value))]
    elif isinstance(value, Mapping):
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, tuple | list) and any(is_dataclass(item) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, (*place, index))
        return
    else:
        yield place, value
        return
    if not items:
        yield place, value
    for name, item in items:
        yield from _leaves(item, (*place, name))
