"""Attributes of torch replaced for a while, and put back whatever happens."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

_ABSENT = object()


@contextlib.contextmanager
def replaced(owner: Any, attributes: Mapping[str, Any]) -> Iterator[None]:
    """While this is on, `owner` has these attributes."""
    before = {name: vars(owner).get(name, _ABSENT) for name in attributes}
    try:
        for name, value in attributes.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            if value is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
