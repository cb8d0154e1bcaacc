"""`load`: files, tables and `--set` to one typed value, with the origin of everything in it; `meant`: with mistakes."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, is_dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from torchledger.config.error import ConfigError, closest
from torchledger.config.meant import readings, wrong_in_all
from torchledger.config.override import read_sets
from torchledger.config.place import Place, dotted, undotted
from torchledger.config.source import Source, read_file, read_table
from torchledger.config.structure import FAILED, MISTAKES, Reading, default_of, field_types, settable_fields, structure
from torchledger.config.wording import bare, members
from torchledger.config.write import leaves

Configured = TypeVar("Configured")
DEFAULT_ORIGIN = "default"
TABLE_ORIGIN = "argument"


@dataclass(frozen=True, slots=True)
class Loaded(Generic[Configured]):
    """A configuration as read.

    Attributes:
        value: the typed value.
        origins: for every leaf of the value, by dotted path: `run.toml:12`, `--set`, `argument` (a table that the
            caller built) or `default`.
        raw: the merged table before typing, `extends` left out.
        files: the file and those it extends, the strongest first.
    """

    value: Configured
    origins: Mapping[str, str]
    raw: Mapping[str, Any]
    files: tuple[Path, ...]


def load(
    path: Path | str | None,
    cls: type[Configured],
    *,
    table: Mapping[str, Any] | None = None,
    sets: Sequence[str] = (),
    defaults: Configured | None = None,
) -> Loaded[Configured]:
    """Read a configuration. From weak to strong: defaults, extended files, the file, `table`, `sets`.

    Args:
        path: a TOML file, or nothing.
        cls: the dataclass to make; its nested dataclasses are tables.
        table: raw values that the caller has already (from flags, a preset, a parsed file).
        sets: `a.b=c` texts of the command line.
        defaults: an instance whose values stand where nothing is given, in place of the fields' own defaults.

    Raises:
        ConfigError: with every mistake in it. A `ValueError` of a dataclass's `__post_init__` is one of them.
    """
    source, files, set_mistakes = _gathered(path, table, sets)
    reading = Reading(source, _names(cls), [])
    value = structure(source.table, cls, (), reading, defaults)
    if reading.mistakes and hasattr(cls, MISTAKES):
        _judge(reading, cls, defaults)
    mistakes = [*set_mistakes, *((dotted(place), message) for place, message in reading.mistakes)]
    if mistakes or value is FAILED:
        raise ConfigError(str(path) if path is not None else "configuration", mistakes)
    origins = {
        dotted(place): (source.gives(place) and source.origin(place)) or DEFAULT_ORIGIN for place, _ in leaves(value)
    }
    return Loaded(value, MappingProxyType(origins), MappingProxyType(source.table), files)


def meant(
    path: Path | str | None,
    cls: type[Configured],
    *,
    table: Mapping[str, Any] | None = None,
    sets: Sequence[str] = (),
    defaults: Configured | None = None,
) -> tuple[Configured, ...]:
    """What a configuration that `load` refuses may mean (`meant.py`): what is wrong in all readings can be told, too.

    Raises:
        ConfigError: the file cannot be read.
    """
    return readings(_gathered(path, table, sets)[0], cls, defaults)


def _gathered(
    path: Path | str | None, table: Mapping[str, Any] | None, sets: Sequence[str]
) -> tuple[Source, tuple[Path, ...], list[tuple[str, str]]]:
    """Raw values of all that was given, the files, and what is wrong with `sets`."""
    source, files = (Source(), ()) if path is None else read_file(Path(path))
    if table is not None:
        source = source.under(read_table(table, TABLE_ORIGIN))
    overrides, mistakes = read_sets(sets)
    return source.under(overrides), files, mistakes


def _judge(reading: Reading, cls: Any, defaults: Any) -> None:
    """Note what a class finds wrong with its values whatever is meant by tables that could not be read."""
    variants: list[dict[str, Any]] = [{}]
    others: list[dict[str, Any]] = []
    types, source = field_types(cls), reading.source
    suggested = {closest(key, types) for key in source.table if key not in types} - source.table.keys()
    for field in settable_fields(cls):
        if field.name in suggested:
            continue  # it was probably given under a misspelt name
        default = default_of(field) if defaults is None else getattr(defaults, field.name)
        if field.name not in source.table:
            found: tuple[Any, ...] = () if default is MISSING else (default,)
        else:
            raw, kind = source.table[field.name], types[field.name]
            made = structure(raw, kind, (field.name,), reading.aside(), default)
            inner: Any = next((each for each in map(bare, members(kind)) if is_dataclass(each)), None)
            within = Source(raw, {}, {at[1:]: text for at, text in source.texts.items() if at[0] == field.name})
            found = (made,) if made is not FAILED else () if inner is None else readings(within, inner, default)
        if found:
            variants[0][field.name] = found[0]
            others += [{field.name: each} for each in found[1:]]
    variants += [variants[0] | each for each in others]
    for where, message in wrong_in_all(variants, getattr(cls, MISTAKES)):
        aside = reading.aside()
        aside.fail(undotted(where), message)
        reading.mistakes.extend(each for each in aside.mistakes if each not in reading.mistakes)


def _names(cls: Any) -> dict[str, list[str]]:
    """Where each field name stands, so that a key in the wrong table can be sent to the right one."""
    found: dict[str, list[str]] = {}

    def visit(kind: Any, place: Place, above: tuple[Any, ...]) -> None:
        for member in map(bare, members(kind)):
            if not is_dataclass(member) or not isinstance(member, type) or member in above:
                continue
            for field in settable_fields(member):
                here = (*place, field.name)
                found.setdefault(field.name, []).append(dotted(here))
                visit(field_types(member)[field.name], here, (*above, member))

    visit(cls, (), ())
    return found
