from dataclasses import dataclass
from typing import get_type_hints

from torchledger import units
from torchledger.units import Amount


@dataclass(frozen=True, slots=True)
class Recipe:
    tokens: units.Count
    memory: units.Bytes
    length: units.Seconds


def test_a_field_type_carries_its_parser():
    """The mark on a dataclass field knows how text becomes the field's value."""
    hints = get_type_hints(Recipe, include_extras=True)
    read = {
        name: next(mark for mark in hint.__metadata__ if isinstance(mark, Amount)).read for name, hint in hints.items()
    }
    assert read["tokens"]("70B") == 70 * 10**9
    assert read["memory"]("70B") == 70
    assert read["length"]("1m") == 60


def test_the_marks_are_plain_numbers_to_python():
    """Without the marks the fields are int and float."""
    assert get_type_hints(Recipe) == {"tokens": int, "memory": int, "length": float}
