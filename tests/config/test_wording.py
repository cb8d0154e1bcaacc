from pathlib import Path
from typing import Literal

import pytest

from torchledger.config.wording import expected, shown
from torchledger.units import Bytes


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (int, "a whole number"),
        (int | None, "a whole number"),
        (float | Literal["auto", "max"], "a number or 'auto' or 'max'"),
        (tuple[int, ...], "a list of whole numbers"),
        (list[Path], "a list of paths"),
        (list, "a list"),
        (tuple[int, str], "a list of 2 (a whole number, text)"),
        (tuple[tuple[int, int], ...], "a list of (a list of 2 (a whole number, a whole number))"),
        (dict[str, int], "a table"),
        (Bytes, "an amount of bytes (80GB (80e9), 80GiB (80*2^30), 512 MiB, 4096 B, 80e9 (bytes))"),
    ],
)
def test_types_in_words(kind, words: str):
    """A type is named as a user would, nothing of Python in it."""
    assert expected(kind) == words


def test_dataclasses_are_tables(run_class):
    """A nested dataclass is a table, with the name that the documentation uses."""
    assert expected(run_class) == "a table (Run)"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, "true"),
        (False, "false"),
        ("x", "'x'"),
        (1.5, "1.5"),
        ([1, 2], "a list of 2"),
        ({}, "a table"),
        ("a" * 100, "'" + "a" * 59 + "..."),
        (None, "None (a NoneType)"),
    ],
)
def test_values_in_words(value, words: str):
    """Scalars show as TOML has them, cut if long; tables and lists by their kind."""
    assert shown(value) == words
