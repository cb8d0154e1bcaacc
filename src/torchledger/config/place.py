"""Where a value stands: a path of keys and list positions, written `optimizer.betas[0]`."""

import re
import tomllib
from typing import Any

Place = tuple[str | int, ...]

_POSITION = re.compile(r"\[(\d+)\]$")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def dotted(path: Place) -> str:
    """The path as people write it; keys that TOML would quote are quoted.

    >>> dotted(("optimizer", "betas", 0)), dotted(("scaling", "a.b"))
    ('optimizer.betas[0]', 'scaling."a.b"')
    """
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            key = part if _BARE_KEY.fullmatch(part) else '"' + part.replace("\\", "\\\\").replace('"', '\\"') + '"'
            text += f".{key}" if text else key
    return text


def split_dotted(text: str) -> Place:
    """The path of a dotted key, read by TOML's rules.

    >>> split_dotted('scaling."a.b"')
    ('scaling', 'a.b')

    Raises:
        ValueError: it is no TOML key.
    """
    if "\n" in text or "=" in text:
        raise ValueError(text)
    table: Any = tomllib.loads(f"{text} = 0")
    path: list[str] = []
    while isinstance(table, dict):
        ((key, table),) = table.items()
        path.append(key)
    return tuple(path)


def undotted(text: str) -> Place:
    """The path that `dotted` wrote.

    >>> undotted("attention.window_pattern[0]"), undotted('scaling."a.b"')
    (('attention', 'window_pattern', 0), ('scaling', 'a.b'))
    """
    position = _POSITION.search(text)
    if position is None:
        return split_dotted(text)
    return (*undotted(text[: position.start()]), int(position[1]))
