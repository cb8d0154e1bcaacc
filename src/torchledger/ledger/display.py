"""How a torch-free object finds its looks without knowing them: `view` registers renderers, objects ask for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_renderers: dict[tuple[type, str], Callable[[Any], str]] = {}


def register(cls: type, form: str, renderer: Callable[[Any], str]) -> None:
    """Let `renderer` draw objects of `cls` in `form` (`text`, `html` ...). The last one registered counts."""
    _renderers[(cls, form)] = renderer


def render(thing: object, form: str) -> str | None:
    """The drawing of `thing` in `form`, or `None` where no renderer was registered."""
    renderer = _renderers.get((type(thing), form))
    return None if renderer is None else renderer(thing)
