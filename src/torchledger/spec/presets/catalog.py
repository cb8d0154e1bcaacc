"""Finding a preset by any of its names, and reading it: one file is opened, never the others."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from torchledger.config import closest, load
from torchledger.spec.file import ModelFile
from torchledger.spec.model import ModelSpec, SpecError

_MODELS = Path(__file__).with_name("models")
_ALIASES = Path(__file__).with_name("aliases.toml")


def names() -> tuple[str, ...]:
    """The presets' names in alphabetical order, sizes by number: `llama-2-7b` before `llama-2-13b`."""
    return tuple(sorted(_names().values(), key=_by_number))


def find(name: str) -> str | None:
    """The preset that a name means, or nothing. Case, `-`, `_` and spaces do not matter, and Hugging Face ids work.

    >>> find("Llama_3-8B"), find("meta-llama/Meta-Llama-3-8B"), find("llama-9b")
    ('llama-3-8b', 'llama-3-8b', None)
    """
    wanted = _squeezed(name)
    return _names().get(wanted) or _aliases().get(wanted)


def get(name: str) -> ModelSpec:
    """The preset of that name.

    Raises:
        SpecError: there is none; the message has the name that was probably meant.
    """
    found = find(name)
    if found is None:
        raise SpecError(f"unknown model {name!r}; {suggestion(name)}")
    return _read(found)


def table() -> tuple[ModelSpec, ...]:
    """Every preset in the order of `names`, for a list; this reads all files."""
    return tuple(_read(name) for name in names())


def path_of(name: str) -> Path:
    """The file of the preset with exactly that name."""
    return _MODELS / f"{name}.toml"


def suggestion(name: str) -> str:
    """The end of a message about an unknown name: the close ones, or all there are."""
    known = names()
    start = name.lower().split("/")[-1]
    near = closest(start, known)
    family = [each for each in known if each.startswith(start.rstrip("-"))] if start else []
    if family:
        return f"did you mean one of {', '.join(family)}?"
    return f"did you mean {near!r}?" if near else f"known: {', '.join(known)}"


def _read(name: str) -> ModelSpec:
    return load(path_of(name), ModelFile).value.model


@cache
def _names() -> dict[str, str]:
    stems = (file.stem for file in _MODELS.glob("*.toml"))
    return {_squeezed(stem): stem for stem in stems}


@cache
def _aliases() -> dict[str, str]:
    by_preset: dict[str, list[str]] = tomllib.loads(_ALIASES.read_text("utf-8"))
    return {_squeezed(alias): preset for preset, aliases in by_preset.items() for alias in aliases}


def _squeezed(name: str) -> str:
    """A name without what people write differently. The point stays: OPT has a 1.3b and a 13b."""
    return name.strip().lower().replace("-", "").replace("_", "").replace(" ", "")


def _by_number(name: str) -> list[tuple[float, str]]:
    """A sort key under which the numbers in a name count as numbers and 560m is less than 1.7b."""
    return [_part(part) for part in name.split("-")]


def _part(part: str) -> tuple[float, str]:
    unit = {"m": 1e6, "b": 1e9}.get(part[-1:], 0.0)
    try:
        return (float(part[:-1]) * unit if unit else float(part), "")
    except ValueError:
        return (0.0, part)
