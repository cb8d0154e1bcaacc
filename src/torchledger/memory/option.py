"""One `name:value` of an allocator's settings text, and how its value is read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

_OPTION = re.compile(r"(?P<name>[^:,\[\]]+):(?P<value>\[[^\[\]]*\]|[^:,\[\]]+)(?:,|$)")


@dataclass(frozen=True, slots=True)
class Option:
    """An option's name and its value as written, spaces taken out; a list keeps its brackets."""

    name: str
    value: str
    error: type[ValueError]

    @property
    def is_list(self) -> bool:
        """Whether the value stands in brackets."""
        return self.value.startswith("[")

    def wrong(self, expected: str) -> ValueError:
        """The error to raise when the value is not what it must be."""
        return self.error(f"{self.name} must be {expected}, not {self.value!r}")

    def integer(self, least: int, expected: str) -> int:
        """A whole number of at least `least`."""
        if not self.value.isdecimal() or int(self.value) < least:
            raise self.wrong(expected)
        return int(self.value)

    def number(self) -> float:
        """A finite number."""
        try:
            value = float(self.value)
        except ValueError:
            raise self.wrong("a number") from None
        if not math.isfinite(value):
            raise self.wrong("a number")
        return value

    def boolean(self) -> bool:
        """True or False, spelled so: PyTorch takes no other spelling."""
        if self.value not in ("True", "False"):
            raise self.wrong("True or False")
        return self.value == "True"

    def pairs(self) -> Iterator[tuple[str, str]]:
        """The `key:value` pairs of a list."""
        for pair in filter(None, self.value.strip("[]").split(",")):
            key, colon, value = pair.partition(":")
            if not colon:
                raise self.wrong("a list like [256:1,512:2,>:8]")
            yield key, value


def split_options(text: str, error: type[ValueError]) -> Iterator[Option]:
    """The options of a text like `name:value,name:[key:value,key:value]`; white space counts for nothing.

    Raises:
        error: what follows at some place is no `name:value`.
    """
    bare = "".join(text.split())
    position = 0
    while position < len(bare):
        found = _OPTION.match(bare, position)
        if found is None:
            raise error(f"expected options like name:value,name:value, found {bare[position:]!r}")
        yield Option(found["name"], found["value"], error)
        position = found.end()
