"""`Keys`: the values of one `config.json`, read by name, with transformers' defaults and every mistake collected.

Models name the same size differently (`n_embd`, `d_model`); `keys.toml` says which names are one. A key that is there
and null is nothing, not its default: Mistral 0.3 switches its window off so.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from torchledger.config import closest
from torchledger.spec.model import SpecError


@dataclass(frozen=True, slots=True)
class Keys:
    """The values of one `config.json`.

    A value of a wrong type is remembered as a mistake and read as a stand-in, so that all mistakes can be told at once.

    Attributes:
        given: the file's object.
        defaults: what a missing key means, by first name.
        where: what the messages call the file.
        mistakes: (key, what is wrong) so far.
        assumed: sizes that the file does not say, and what they were taken for.
    """

    given: Mapping[str, Any]
    defaults: Mapping[str, Any]
    where: str
    mistakes: list[tuple[str, str]] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, given: Mapping[str, Any], model_type: str, where: str) -> Keys:
        """The keys of a config, read as transformers reads a `model_type`."""
        return cls(given, _table()["defaults"][model_type], where)

    def size(self, key: str) -> int:
        """A positive whole number that the architecture needs."""
        value = self.optional_size(key)
        if value is None:
            self._missing(key, "a whole number")
            return 1
        return value

    def optional_size(self, key: str) -> int | None:
        """A positive whole number, or nothing."""
        name, value = self._find(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self._mistake(name, f"expected a whole number of at least 1, got {value!r}")
            return 1
        if name not in self.given:
            self._assume(key, value)
        return value

    def count(self, key: str) -> int:
        """A whole number that may be zero; nothing is zero."""
        name, value = self._find(key)
        if value is None:
            return 0
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self._mistake(name, f"expected a whole number of at least 0, got {value!r}")
            return 0
        return value

    def number(self, key: str) -> float:
        """A number."""
        value = self.optional_number(key)
        if value is None:
            self._missing(key, "a number")
            return 1.0
        return value

    def optional_number(self, key: str) -> float | None:
        """A number, or nothing."""
        name, value = self._find(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._mistake(name, f"expected a number, got {value!r}")
            return 1.0
        return float(value)

    def flag(self, key: str) -> bool:
        """True or false; nothing is false."""
        name, value = self._find(key)
        if value is not None and not isinstance(value, bool):
            self._mistake(name, f"expected true or false, got {value!r}")
        return value is True

    def text(self, key: str) -> str:
        """A text; nothing is the empty text."""
        name, value = self._find(key)
        if value is not None and not isinstance(value, str):
            self._mistake(name, f"expected a text, got {value!r}")
        return value if isinstance(value, str) else ""

    def table(self, key: str) -> Mapping[str, Any]:
        """An object of its own; nothing is an empty one."""
        name, value = self._find(key)
        if value is not None and not isinstance(value, Mapping):
            self._mistake(name, f"expected an object, got {value!r}")
        return value if isinstance(value, Mapping) else {}

    def items(self, key: str) -> list[Any]:
        """A list; nothing is an empty one."""
        name, value = self._find(key)
        if value is not None and not isinstance(value, list):
            self._mistake(name, f"expected a list, got {value!r}")
        return value if isinstance(value, list) else []

    def refuse(self, key: str, message: str) -> None:
        """Remember that the value of a key describes something that a `ModelSpec` cannot."""
        self._mistake(self._find(key)[0], message)

    def within(self, key: str, values: Mapping[str, Any]) -> Keys:
        """The keys of an object inside this one, whose mistakes are told with the rest, without defaults."""
        return Keys(values, {}, f"{self.where}: {key}", self.mistakes, self.assumed)

    def require_no_mistakes(self) -> None:
        """Tell every mistake so far.

        Raises:
            SpecError: there is one.
        """
        if len(self.mistakes) == 1:
            raise SpecError(f"{self.where}: {': '.join(self.mistakes[0])}")
        if self.mistakes:
            lines = "".join(f"\n  {name}: {message}" for name, message in self.mistakes)
            raise SpecError(f"{self.where}: {len(self.mistakes)} mistakes{lines}")

    def _find(self, key: str) -> tuple[str, Any]:
        """The name under which a key is given and its value: one that says something, else a null, else the default."""
        names = [name for name in (key, *_table()["aliases"].get(key, ())) if name in self.given]
        for name in names:
            if self.given[name] is not None:
                return name, self.given[name]
        return (names[0], None) if names else (key, self.defaults.get(key))

    def _mistake(self, name: str, message: str) -> None:
        if (name, message) not in self.mistakes:
            self.mistakes.append((name, message))

    def _missing(self, key: str, needed: str) -> None:
        name = self._find(key)[0]
        lack = "is null" if name in self.given else "is missing and has no default"
        self._mistake(name, f"{lack}; {needed} is needed")

    def _assume(self, key: str, value: object) -> None:
        near = closest(key, self.given)
        hint = f" (is {near!r} meant for it?)" if near else ""
        told = f"{key} is not in the config and was taken for transformers' default, {value}{hint}"
        if told not in self.assumed:
            self.assumed.append(told)


def known_model_types() -> tuple[str, ...]:
    """The values of `model_type` that can be read."""
    return (*_table()["defaults"], "gemma3")


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("keys.toml").read_text("utf-8"))
