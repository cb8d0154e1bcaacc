"""On which line of a TOML text each key stands. `tomllib` does not tell, and a message should.

The text has been read by `tomllib` before, so that this walk can trust its syntax.
"""

import re
import tomllib

from torchledger.config.place import Place

_SPACE = re.compile(r"(?:[ \t\r\n]|\#[^\n]*)*")
_KEY = re.compile(r"""[ \t]*(?P<key>[A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|'[^'\n]*')[ \t]*""")
_VALUE_PART = re.compile(
    r'''
    """(?:\\.|[^\\])*?"""(?:"{0,2})     # a text of several lines may end with quotes of its own
    | \'\'\'.*?\'\'\'(?:'{0,2})
    | "(?:\\.|[^"\\\n])*"
    | '[^'\n]*'
    | \#[^\n]*
    | .
    ''',
    re.VERBOSE | re.DOTALL,
)


def line_numbers(text: str) -> dict[Place, int]:
    r"""The line, counted from 1, of every key and table header outside inline tables.

    >>> line_numbers("name = 'x'\n[model]\nhidden_size = 8\n")
    {('name',): 1, ('model',): 2, ('model', 'hidden_size'): 3}
    """
    found: dict[Place, int] = {}
    elements: dict[Place, int] = {}  # how many tables an array of tables has so far
    prefix: Place = ()
    at = _skip(_SPACE, text, 0)
    while at < len(text):
        line = text.count("\n", 0, at) + 1
        brackets = 2 if text.startswith("[[", at) else text.startswith("[", at)
        key, at = _dotted_key(text, at + brackets)
        if brackets:
            prefix = _resolve(key, elements, new_element=brackets == 2)
            found[prefix] = line
            at += brackets
        else:
            found[prefix + key] = line
            at = _after_value(text, at)
        at = _skip(_SPACE, text, at)
    return found


def _skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return at if match is None else match.end()


def _dotted_key(text: str, at: int) -> tuple[Place, int]:
    """The key at `at`, and where it ends."""
    parts: list[str] = []
    while (match := _KEY.match(text, at)) is not None:
        key = match["key"]
        parts.append(tomllib.loads(f"x = {key}")["x"] if key[0] in "\"'" else key)
        at = match.end()
        if not text.startswith(".", at):
            break
        at += 1
    return tuple(parts), at


def _resolve(key: Place, elements: dict[Place, int], *, new_element: bool) -> Place:
    """`runs.name` below `[[runs]]` is the name of its last element."""
    path: Place = ()
    for position, part in enumerate(key):
        path = (*path, part)
        if new_element and position == len(key) - 1:
            elements[path] = elements.get(path, 0) + 1
        if path in elements:
            path = (*path, elements[path] - 1)
    return path


def _after_value(text: str, at: int) -> int:
    """Where the value ends whose `=` is at `at`: at the first end of line outside texts and brackets."""
    depth = 0
    while (match := _VALUE_PART.match(text, at)) is not None:
        part = match[0]
        if part == "\n" and depth == 0:
            break
        depth += (part in "[{") - (part in "]}") if len(part) == 1 else 0
        at = match.end()
    return at
