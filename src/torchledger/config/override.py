"""`--set a.b=c`: one value from the command line."""

import datetime as dt
import tomllib
from collections.abc import Sequence
from typing import Any

from torchledger.config.place import Place, split_dotted
from torchledger.config.source import Source

SET_ORIGIN = "--set"


def read_sets(sets: Sequence[str]) -> tuple[Source, list[tuple[str, str]]]:
    """All `a.b=c` as one source, later ones over earlier ones, and the mistakes among them.

    The value is TOML if it reads as TOML (`8`, `1e-4`, `true`, `[1, 2]`, `"text"`), else it is text (`15T`, `bf16`).
    """
    source, mistakes = Source(), []
    for given in sets:
        key, sign, text = given.partition("=")
        try:
            path = split_dotted(key)
        except ValueError:
            path = ()
        if not sign or not path:
            mistakes.append((f"--set {given}", "expected KEY=VALUE, such as --set recipe.batch_size=8"))
            continue
        if path == ("extends",):
            mistakes.append((f"--set {given}", "a file can be extended only by a file; write extends in it"))
            continue
        source = source.under(_one(path, text.strip()))
    return source, mistakes


def _one(path: Place, text: str) -> Source:
    table: Any = _value(text)
    for key in reversed(path):
        table = {key: table}
    return Source(table, {path: SET_ORIGIN}, {path: text})


def _value(text: str) -> Any:
    if "\n" in text:  # would be read as further keys
        return text
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    # a date is nothing that any field is, but a name may look like one
    return text if isinstance(value, dt.date | dt.time) else value
