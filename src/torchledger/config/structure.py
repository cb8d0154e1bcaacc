"""Raw TOML values to typed ones: strict, and collecting every mistake instead of stopping at the first.

Strict means: 3.7 is no whole number, nor is 3.0, nor "3"; `true` is no number; an unknown key is a mistake. A field
whose type carries a unit (`units.Count`, ...) takes text too.
"""

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, get_args, get_origin, get_type_hints

from torchledger.config.error import closest
from torchledger.config.place import Place, dotted, undotted
from torchledger.config.source import Source
from torchledger.config.wording import amount_of, bare, choices, expected, members, shown
from torchledger.units import Amount, UnitError, parse_count

NONE: Final = "none"
"""TOML has no null: this word switches an optional field off."""
MISTAKES: Final = "find_mistakes"
"""A configuration's class may have a static method of this name: from the fields that could be read, by name, to the
(dotted path, message) of everything that is wrong with them."""
FAILED: Final = object()
"""Stands for a value that could not be made; a mistake has been noted."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one reading of a configuration carries along.

    Attributes:
        source: raw values, and the origin of each.
        elsewhere: for each field name of the whole configuration, the dotted paths where it stands.
        mistakes: (path, message) found so far.
    """

    source: Source
    elsewhere: Mapping[str, list[str]]
    mistakes: list[tuple[Place, str]]

    def fail(self, place: Place, message: str) -> Any:
        """Note a mistake, with where its value was written."""
        origin = self.source.origin(place)
        self.mistakes.append((place, f"{message} [{origin}]" if origin else message))
        return FAILED

    def aside(self) -> "Reading":
        """The same reading with a sheet of its own for mistakes, to try one member of a union."""
        return Reading(self.source, self.elsewhere, [])


def structure(value: Any, kind: Any, place: Place, reading: Reading, base: Any = None) -> Any:
    """The raw `value` as an instance of the type `kind`, or `FAILED`.

    Args:
        value: a TOML value.
        kind: a field's type: dataclass, bool, int, float, str, Path, Literal, enum, tuple, list, dict, a union of
            these, `Annotated` with a unit, or Any.
        place: where it stands, for messages.
        reading: takes the mistakes.
        base: the field's default; a dataclass fills the fields that the table leaves out from it.

    Raises:
        TypeError: our mistake: a field has a type that no configuration can hold.
    """
    amount = amount_of(kind)
    if amount is not None:
        return _amount(value, amount, place, reading)
    kind = bare(kind)
    if kind is Any:
        return value
    if len(members(kind)) > 1:
        return _union(value, kind, place, reading, base)
    if is_dataclass(kind) and isinstance(kind, type):
        return _dataclass(value, kind, place, reading, base)
    if choices(kind):
        return _choice(value, kind, place, reading)
    origin = get_origin(kind) or kind
    if origin in {tuple, list}:
        return _list(value, kind, place, reading)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(value, kind, place, reading)
    if kind not in _SCALARS:
        raise TypeError(f"{dotted(place)}: a configuration cannot hold a field of type {kind}")
    return _SCALARS[kind](value, place, reading)


def switches_off(kind: Any) -> bool:
    """Whether "none" in a field of this type means nothing, and not the text or the choice of that name."""
    alternatives = members(kind)
    return type(None) in alternatives and not any(m is str or NONE in choices(m) for m in map(bare, alternatives))


@lru_cache
def field_types(cls: type) -> dict[str, Any]:
    """The types of a dataclass's fields, their unit marks kept."""
    return get_type_hints(cls, include_extras=True)


def settable_fields(cls: Any) -> list[Field[Any]]:
    """The fields that a configuration sets."""
    return [field for field in fields(cls) if field.init]


def _dataclass(value: Any, cls: type, place: Place, reading: Reading, base: Any) -> Any:
    if not isinstance(value, Mapping):
        return _expected(value, cls, place, reading)
    base = base if isinstance(base, cls) else None
    before, types = len(reading.mistakes), field_types(cls)
    known = {field.name: field for field in settable_fields(cls)}
    suggested = {_unknown_key(key, place, known, reading) for key in value if key not in known}
    made: dict[str, Any] = {}
    for name, field in known.items():
        default = getattr(base, name) if base is not None else default_of(field)
        if name in value:
            made[name] = structure(value[name], types[name], (*place, name), reading, default)
        elif default is not MISSING:
            made[name] = default
        elif name not in suggested:
            reading.fail((*place, name), f"is missing; {_how_to_give((*place, name), types[name])}")
    if hasattr(cls, MISTAKES):
        # what could be read is judged even where the rest could not, so that nothing is told only in a second round
        sound = {name: part for name, part in made.items() if part is not FAILED and name not in suggested}
        for where, message in getattr(cls, MISTAKES)(sound):
            reading.fail((*place, *undotted(where)), message)
    if len(reading.mistakes) > before:
        return FAILED
    try:
        return cls(**made)
    except ValueError as error:
        return reading.fail(place, str(error))


def _how_to_give(place: Place, kind: Any) -> str:
    cls = bare(kind)
    if not is_dataclass(cls):
        return f"write {place[-1]} = ..., {expected(kind)}"
    required = [field.name for field in settable_fields(cls) if default_of(field) is MISSING]
    return f"write a table [{dotted(place)}]" + (f" with {', '.join(required)}" if required else "")


def default_of(field: Field[Any]) -> Any:
    """A field's default, `MISSING` without one."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def _unknown_key(key: str, place: Place, known: Mapping[str, Any], reading: Reading) -> str | None:
    """Note an unknown key; the field that it was probably meant for."""
    if key in reading.elsewhere:
        reading.fail((*place, key), f"unknown key; it belongs to {' or '.join(reading.elsewhere[key][:3])}")
        return None
    close = closest(key, known)
    if close is not None:
        reading.fail((*place, key), f"unknown key; did you mean {dotted((*place, close))}?")
    else:
        reading.fail((*place, key), f"unknown key; {dotted(place) or 'the file'} has {', '.join(known)}")
    return close


def _union(value: Any, kind: Any, place: Place, reading: Reading, base: Any) -> Any:
    """The first member that takes the value; members of the value's very type before those that convert it."""
    if value is None or (value == NONE and switches_off(kind)):
        return None if type(None) in members(kind) else _expected(value, kind, place, reading)
    alternatives = sorted(members(kind), key=lambda member: bare(member) is not type(value))
    tries: list[Reading] = []
    for member in alternatives:
        if member is type(None):
            continue
        tries.append(reading.aside())
        made = structure(value, member, place, tries[-1], base)
        if made is not FAILED:
            return made
    best = min(tries, key=lambda attempt: len(attempt.mistakes))
    if isinstance(value, Mapping | list) or len(tries) == 1:
        nested = [attempt for attempt in tries if any(at != place for at, _ in attempt.mistakes)]
        reading.mistakes.extend(min(nested, key=lambda attempt: len(attempt.mistakes), default=best).mistakes)
        return FAILED
    names = [choice for member in alternatives for choice in choices(member) if isinstance(choice, str)]
    close = closest(value, names) if isinstance(value, str) else None
    return _expected(value, kind, place, reading, f"did you mean {close!r}?" if close else "")


def _amount(value: Any, amount: Amount, place: Place, reading: Reading) -> Any:
    if isinstance(value, str | int | float):
        try:
            return amount.read(value)
        except UnitError as error:
            what = f"{shown(value)} is not {error.quantity}: {error.reason}; accepted: {error.accepts}"
            return reading.fail(place, what)
    return reading.fail(
        place, f"expected {amount.quantity.name}, got {shown(value)}; accepted: {amount.quantity.accepts}"
    )


def _choice(value: Any, kind: Any, place: Place, reading: Reading) -> Any:
    allowed = choices(kind)
    texts = [choice for choice in allowed if isinstance(choice, str)]
    for given in (value, reading.source.texts.get(place)):
        for choice in allowed:
            if choice == given and type(choice) is type(given):
                return kind(choice) if isinstance(kind, type) and issubclass(kind, enum.Enum) else choice
    close = closest(value, texts) if isinstance(value, str) else None
    return _expected(value, kind, place, reading, f"did you mean {close!r}?" if close else "")


def _list(value: Any, kind: Any, place: Place, reading: Reading) -> Any:
    origin, items = get_origin(kind) or kind, get_args(kind)
    if not isinstance(value, list | tuple):
        return _expected(value, kind, place, reading, "write it in [ ]")
    fixed = origin is tuple and items and items[-1] is not Ellipsis
    if fixed and len(items) != len(value):
        return _expected(value, kind, place, reading)
    types = items if fixed else (items[:1] or (Any,)) * len(value)
    made = [structure(item, types[i], (*place, i), reading) for i, item in enumerate(value)]
    return FAILED if any(item is FAILED for item in made) else origin(made)


def _mapping(value: Any, kind: Any, place: Place, reading: Reading) -> Any:
    if not isinstance(value, Mapping):
        return _expected(value, kind, place, reading)
    _, item = get_args(kind) or (str, Any)
    made = {key: structure(entry, item, (*place, key), reading) for key, entry in value.items()}
    return FAILED if any(entry is FAILED for entry in made.values()) else made


def _bool(value: Any, place: Place, reading: Reading) -> Any:
    return value if isinstance(value, bool) else _expected(value, bool, place, reading, "write true or false")


def _int(value: Any, place: Place, reading: Reading) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    hint = ""
    if isinstance(value, float) and value.is_integer():
        hint = f"write {int(value)}"
    elif isinstance(value, str):
        try:
            hint = f"write {parse_count(value)}, without quotes"
        except UnitError:
            hint = ""
    return _expected(value, int, place, reading, hint)


def _float(value: Any, place: Place, reading: Reading) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            return reading.fail(place, "is too large for a number; write a smaller one")
        if not math.isnan(number):
            return number
    hint = ""
    if isinstance(value, str):
        try:
            hint = f"write {float(value)!r}, without quotes"
        except ValueError:
            hint = ""
    return _expected(value, float, place, reading, hint)


def _str(value: Any, place: Place, reading: Reading) -> Any:
    if not isinstance(value, str):
        value = reading.source.texts.get(place, value)
    return value if isinstance(value, str) else _expected(value, str, place, reading, "write it in quotes")


def _path(value: Any, place: Place, reading: Reading) -> Any:
    if isinstance(value, Path):
        return value
    text = _str(value, place, reading.aside())
    if not isinstance(text, str) or not text or "\0" in text:
        return _expected(value, Path, place, reading)
    return Path(text)


def _expected(value: Any, kind: Any, place: Place, reading: Reading, hint: str = "") -> Any:
    message = f"expected {expected(kind)}, got {shown(value)}"
    return reading.fail(place, f"{message}; {hint}" if hint else message)


_SCALARS: dict[Any, Callable[[Any, Place, Reading], Any]] = {
    bool: _bool,
    int: _int,
    float: _float,
    str: _str,
    Path: _path,
}
