"""Raw tables and where their values come from: files with `extends`, tables built by a caller, and their merging."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchledger.config.error import ConfigError, closest
from torchledger.config.lines import line_numbers
from torchledger.config.place import Place

_MAX_EXTENDS = 32
_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_UNIT_WITHOUT_QUOTES = re.compile(r"=\s*([$€£]?[0-9][0-9_.,]*(?:e[0-9]+)?\s*[A-Za-z][A-Za-z/ ]*)")
_WORD_WITHOUT_QUOTES = re.compile(r"=\s*([A-Za-z][\w./-]*)\s*(?:#|$)")


@dataclass(frozen=True, slots=True)
class Source:
    """A raw table and the origin of each value in it.

    Attributes:
        table: what TOML says, nested.
        origins: by path, `file:line`, `--set` or the caller's word; a value without an entry has its table's.
        texts: by path, the text of a value given on the command line, for fields that want text after all.
    """

    table: dict[str, Any] = field(default_factory=dict)
    origins: dict[Place, str] = field(default_factory=dict)
    texts: dict[Place, str] = field(default_factory=dict)

    def origin(self, path: Place) -> str | None:
        """Where the value at `path`, or the nearest table or list around it, was written."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.origins:
                return self.origins[path[:end]]
        return None

    def gives(self, path: Place) -> bool:
        """Whether the table says anything of `path`, itself or in a list that holds it."""
        value: Any = self.table
        for key in path:
            if not isinstance(value, Mapping):
                break
            if key not in value:
                return False
            value = value[key]
        return True

    def under(self, stronger: "Source") -> "Source":
        """The two merged: tables key by key, everything else replaced by the stronger one's value."""
        table: dict[str, Any] = {**self.table}
        origins, texts = dict(self.origins), dict(self.texts)
        _merge(table, stronger.table, (), origins, texts)
        return Source(table, origins | stronger.origins, texts | stronger.texts)


def _merge(
    table: dict[str, Any], stronger: Mapping[str, Any], path: Place, origins: dict[Place, str], texts: dict[Place, str]
) -> None:
    for key, value in stronger.items():
        here = (*path, key)
        if isinstance(value, Mapping) and isinstance(table.get(key), Mapping):
            table[key] = dict(table[key])
            _merge(table[key], value, here, origins, texts)
            continue
        table[key] = value
        for old in (origins, texts):
            for known in [known for known in old if known[: len(here)] == here]:
                del old[known]


def read_table(table: Mapping[str, Any], word: str) -> Source:
    """A table that a caller built; `word` is the origin of its values."""
    return Source(dict(table), {(key,): word for key in table})


def read_file(path: Path) -> tuple[Source, tuple[Path, ...]]:
    """A TOML file over the files that it extends, and all these files, the strongest first.

    `extends = "other.toml"` is relative to the file that says it.

    Raises:
        ConfigError: a file is missing, is no file, is not UTF-8, is not TOML, or extends itself.
    """
    chain: list[tuple[Path, Source]] = []
    files: list[Path] = []
    following: Path | None = path
    while following is not None:
        if any(_same(following, file) for file in files) or len(files) == _MAX_EXTENDS:
            cycle = " -> ".join(str(file) for file in [*files, following])
            raise ConfigError(str(path), [("extends", f"the files extend each other in a circle: {cycle}; break it")])
        files.append(following)
        source, extends = _read_one(following, extended_by=files[-2] if len(files) > 1 else None)
        chain.append((following, source))
        following = None if extends is None else following.parent / extends
    merged = Source()
    for _, source in reversed(chain):
        merged = merged.under(source)
    return merged, tuple(files)


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _read_one(path: Path, extended_by: Path | None) -> tuple[Source, str | None]:
    text = _text(path, extended_by)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(path, text, str(error)) from None
    lines = line_numbers(text)
    extends = table.pop("extends", None)
    if extends is not None and not isinstance(extends, str):
        message = f'expected the path of a TOML file, got {extends!r}; write extends = "base.toml"'
        raise ConfigError(f"{path}:{lines[('extends',)]}", [("extends", message)])
    origins = {at: f"{path}:{line}" for at, line in lines.items() if at != ("extends",)}
    return Source(table, origins), extends


def _text(path: Path, extended_by: Path | None) -> str:
    """The text of a file, a byte order mark left out."""
    because = f" (extended by {extended_by})" if extended_by else ""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        neighbours = path.parent.glob("*.toml") if path.parent.is_dir() else ()
        near = closest(path.stem, [file.stem for file in neighbours])
        hint = f"did you mean {path.with_name(near)}.toml?" if near else "check the path"
        raise ConfigError(str(path), [("", f"no such file{because}; {hint}")]) from None
    except IsADirectoryError:
        raise ConfigError(str(path), [("", f"is a folder{because}; name a .toml file in it")]) from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            str(path), [("", f"cannot be read{because}: {reason}; check the path and its permissions")]
        ) from None
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8 text"
        raise ConfigError(f"{path}:{line}", [("", what)]) from None


def _syntax_error(path: Path, text: str, error: str) -> ConfigError:
    """A syntax error with its line, the text of that line, and the usual slip if it is one."""
    position = _POSITION.search(error)
    reason = error[: position.start()] if position else error
    lines = text.rstrip().split("\n")
    number = min(int(position[1]), len(lines)) if position and position[1] else len(lines)
    line = lines[number - 1].strip()
    amount, word = _UNIT_WITHOUT_QUOTES.search(line), _WORD_WITHOUT_QUOTES.search(line)
    hint = ""
    if amount:
        hint = f'; an amount with a unit needs quotes: "{amount[1].strip()}"'
    elif word:
        hint = f'; text needs quotes: "{word[1]}"'
    message = f"not valid TOML: {reason[:1].lower()}{reason[1:]}: {line!r}{hint}"
    return ConfigError(f"{path}:{number}", [("", message)])
