"""What a configuration with mistakes may mean: its values with stand-ins where something could not be read.

A wrong-typed value hides whatever is wrong with the others: nothing can be judged before the whole is typed. So each
value that could not be read is stood in for, once by its default and once by every other kind of value its field can
have, and what is wrong in all of these readings is wrong whatever was meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, is_dataclass
from typing import Any, Final, TypeVar

from torchledger.config.error import closest
from torchledger.config.place import Place
from torchledger.config.source import Source
from torchledger.config.structure import FAILED, Reading, default_of, field_types, settable_fields, structure
from torchledger.config.wording import amount_of, bare, choices, members

Configured = TypeVar("Configured")
Mistake = tuple[str, str]

#: Nothing is wrong with 1 as a number of anything, nor with a size that all small numbers divide: 16·9·5·7·11·13.
_COUNTS: Final = (1, 720_720)
#: Rounds of repair: a value that stands in may break a rule of its class in turn.
_ROUNDS: Final = 4
_GONE: Final = object()


def readings(source: Source, cls: type[Configured], defaults: Any) -> tuple[Configured, ...]:
    """Every reading of a source that has mistakes; one where it has none, none where it means nothing at all.

    They differ in one stood-in value at a time, from a reading of defaults and small numbers and from one of large
    numbers: where 1 for one field makes no sense beside what was read, there are readings of all the others still.

    Args:
        source: raw values.
        cls: the dataclass to make.
        defaults: what stands where nothing is given.
    """
    table: Any = source.table
    defaults = defaults if isinstance(defaults, cls) else None
    unread: dict[Place, Any] = {}
    for _ in range(_ROUNDS):
        value, places = _read(table, source, cls, defaults)
        if value is not FAILED:
            break
        for place in places:
            field, kind = _field_at(cls, place)
            if not field:
                return ()
            if kind is not None:
                unread[field] = kind
            elif (near := _near(cls, field)) is not None and _is_absent(
                table, near
            ):  # the field that an unknown key was probably meant for
                unread[near] = _field_at(cls, near)[1]
            stand_in = _GONE if kind is None else next(iter(_stand_ins(kind)), _GONE)
            is_last_resort = kind is not None and field in places and _is_absent(table, field)
            table = _with(table, field, stand_in if is_last_resort else _GONE)
    else:
        return ()
    found = [value]
    for base in (table, _with_large(table, unread)):
        for place, kind in unread.items():
            for each in _stand_ins(kind):
                other, _ = _read(_with(base, place, each), source, cls, defaults)
                if other is not FAILED:
                    found.append(other)
    return tuple(found)


def wrong_in_all(values: Iterable[Configured], find: Callable[[Configured], Iterable[Mistake]]) -> list[Mistake]:
    """What is wrong in every reading, in the order of the first; nothing without a reading.

    >>> wrong_in_all([(8, 3), (8, 4)], lambda v: [("batch", "is 8"), *([("steps", "is 3")] if v[1] == 3 else [])])
    [('batch', 'is 8')]
    """
    judged = [list(find(value)) for value in values]
    return [each for each in judged[0] if all(each in others for others in judged[1:])] if judged else []


def _read(table: Any, source: Source, cls: type[Configured], defaults: Configured | None) -> tuple[Any, list[Place]]:
    """The value, or `FAILED`, and the places of what is wrong."""
    reading = Reading(Source(table, source.origins, source.texts), {}, [])
    value = structure(table, cls, (), reading, defaults)
    return value, [place for place, _ in reading.mistakes]


def _field_at(kind: Any, place: Place) -> tuple[Place, Any]:
    """The innermost field of nested dataclasses that a place is in, with its type; no type: no field has this name."""
    within: Place = ()
    for key in place:
        cls = next((each for each in map(bare, members(kind)) if is_dataclass(each)), None)
        if cls is None:
            break
        within = (*within, key)
        kind = field_types(cls).get(str(key)) if isinstance(cls, type) else None
        if kind is None:
            break
    return within, kind


def _near(cls: Any, place: Place) -> Place | None:
    """The field beside an unknown key that is spelt like it."""
    *above, key = place
    kind = _field_at(cls, tuple(above))[1] if above else cls
    inner = next((each for each in map(bare, members(kind)) if is_dataclass(each)), None)
    close = None if inner is None else closest(str(key), [field.name for field in settable_fields(inner)])
    return None if close is None else (*above, close)


def _stand_ins(kind: Any) -> Iterator[Any]:
    """Raw values that a field can have, of every kind that rules may tell apart."""
    if amount_of(kind) is not None:
        yield from _COUNTS
        return
    for each in map(bare, members(kind)):
        if choices(each):
            yield from choices(each)
        elif each is bool:
            yield from (False, True)
        elif each is int:
            yield from _COUNTS
        elif each is float:
            yield from (0.5, 1.0)
        elif each is str:
            yield "name"
        elif is_dataclass(each) and isinstance(each, type):
            yield from _tables(each)


def _tables(cls: type) -> Iterator[dict[str, Any]]:
    """Tables that a dataclass can be made of: only what it needs, then with one field at a time of every kind."""
    types = field_types(cls)
    needed = {field.name: types[field.name] for field in settable_fields(cls) if default_of(field) is MISSING}
    small = {name: next(_stand_ins(kind), _GONE) for name, kind in needed.items()}
    is_flat = not any(isinstance(each, Mapping) for each in small.values())
    for base in (small, _with_large(small, {(name,): kind for name, kind in needed.items()})) if is_flat else (small,):
        yield base
        for field in settable_fields(cls):
            for each in _stand_ins(types[field.name]):
                yield base | {field.name: each}


def _with_large(table: dict[str, Any], unread: Mapping[Place, Any]) -> dict[str, Any]:
    """The table with a large number for every field that has one; the one given stays as it is."""
    for place, kind in unread.items():
        if amount_of(kind) is not None or int in map(bare, members(kind)):
            table = _with(table, place, _COUNTS[-1])
    return table


def _is_absent(table: Any, place: Place) -> bool:
    for key in place:
        if not isinstance(table, Mapping) or key not in table:
            return True
        table = table[key]
    return False


def _with(table: Any, place: Place, value: Any) -> Any:
    """The table with one value put in or taken out; the one given stays as it is."""
    changed = dict(table) if isinstance(table, Mapping) else {}
    key = place[0]
    if len(place) > 1:
        changed[str(key)] = _with(changed.get(str(key), {}), place[1:], value)
    elif value is _GONE:
        changed.pop(str(key), None)
    else:
        changed[str(key)] = value
    return changed
