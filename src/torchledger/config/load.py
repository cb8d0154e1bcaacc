"""`load`: files, tables and `--set` to one typed value, with the origin of everything in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from torchledger.config.error import ConfigError
from torchledger.config.override import read_sets
from torchledger.config.place import Place, dotted
from torchledger.config.source import Source, read_file, read_table
from torchledger.config.structure import FAILED, Reading, field_types, settable_fields, structure
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
    source, files = (Source(), ()) if path is None else read_file(Path(path))
    if table is not None:
        source = source.under(read_table(table, TABLE_ORIGIN))
    overrides, set_mistakes = read_sets(sets)
    source = source.under(overrides)
    reading = Reading(source, _names(cls), [])
    value = structure(source.table, cls, (), reading, defaults)
    mistakes = [*set_mistakes, *((dotted(place), message) for place, message in reading.mistakes)]
    if mistakes or value is FAILED:
        raise ConfigError(str(path) if path is not None else "configuration", mistakes)
    origins = {
        dotted(place): (source.gives(place) and source.origin(place)) or DEFAULT_ORIGIN for place, _ in leaves(value)
    }
    return Loaded(value, MappingProxyType(origins), MappingProxyType(source.table), files)


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
