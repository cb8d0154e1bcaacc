from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NewType

import pytest

from torchledger import config
from torchledger.config import ConfigError
from torchledger.config.source import Source, read_table
from torchledger.config.structure import FAILED, Reading, structure


def read(kind, value, text: str | None = None):
    """The value and the messages of reading one raw value."""
    source = read_table({"x": value}, "here")
    if text is not None:
        source = Source(source.table, source.origins, {("x",): text})
    reading = Reading(source, {}, [])
    made = structure(value, kind, ("x",), reading)
    return made, [message.removesuffix(" [here]") for _, message in reading.mistakes]


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (int, 3.7, "expected a whole number, got 3.7"),
        (int, 3.0, "expected a whole number, got 3.0; write 3"),
        (int, True, "expected a whole number, got true"),
        (int, "4k", "expected a whole number, got '4k'; write 4000, without quotes"),
        (int, "many", "expected a whole number, got 'many'"),
        (int, [1], "expected a whole number, got a list of 1"),
        (float, "1e-3", "expected a number, got '1e-3'; write 0.001, without quotes"),
        (float, True, "expected a number, got true"),
        (float, float("nan"), "expected a number, got nan"),
        (float, 10**400, "is too large for a number; write a smaller one"),
        (bool, 1, "expected true or false, got 1; write true or false"),
        (bool, "true", "expected true or false, got 'true'; write true or false"),
        (str, 3, "expected text, got 3; write it in quotes"),
        (Path, 3, "expected a path in quotes, got 3"),
        (Path, "", "expected a path in quotes, got ''"),
        (tuple[float, float], [1.0], "expected a list of 2 (a number, a number), got a list of 1"),
        (tuple[int, ...], 3, "expected a list of whole numbers, got 3; write it in [ ]"),
        (dict[str, float], 3, "expected a table, got 3"),
        (int | None, "no", "expected a whole number, got 'no'"),
        (int | float | None, "no", "expected a whole number or a number, got 'no'"),
    ],
)
def test_strictness(kind, value, message: str):
    """A value of another type is a mistake that says what is expected, what came, and the fix if there is one."""
    assert read(kind, value) == (FAILED, [message])


@pytest.mark.parametrize(
    ("kind", "value", "made"),
    [
        (float, 3, 3.0),
        (float, float("inf"), float("inf")),
        (int | float, 3, 3),
        (float | int, 3, 3),
        (float | None, 3, 3.0),
        (float | None, "none", None),
        (Path | None, "none", None),
        (str | None, "none", "none"),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[()], [], ()),
        (list[int], [1, 2], [1, 2]),
        (dict[str, float], {"a": 1}, {"a": 1.0}),
        (Annotated[int, "a remark"], 3, 3),
        (NewType("Index", int), 3, 3),
    ],
)
def test_what_is_taken(kind, value, made):
    """Whole numbers are numbers, "none" switches off what is not text, and lists become the field's own kind."""
    result, messages = read(kind, value)
    assert not messages
    assert result == made
    assert type(result) is type(made)


def test_amounts_take_text_and_whole_numbers(run_class):
    """A field with a unit reads text by its unit's rules: B is a billion of a count and a byte of a size."""
    table = {"model": {"hidden_size": 8}, "tokens": "15T", "memory": "80B", "limit": "1h30m"}
    value = config.load(None, run_class, table=table).value
    assert (value.tokens, value.memory, value.limit) == (15 * 10**12, 80, 5400.0)
    assert config.load(None, run_class, table=table | {"tokens": 1e12, "memory": "auto"}).value.tokens == 10**12


def test_a_union_says_all_it_takes(run_class):
    """A value that no member takes gets the members, and the near choice."""
    with pytest.raises(ConfigError) as error:
        config.load(None, run_class, table={"model": {"hidden_size": 8}, "micro_batch": "aut", "memory": "80G"})
    found = dict(error.value.mistakes)
    assert found["micro_batch"] == "expected a whole number or 'auto', got 'aut'; did you mean 'auto'? [argument]"
    assert found["memory"].startswith("expected an amount of bytes (80GB")


def test_a_wrong_table_in_a_union_shows_its_own_mistake(run_class):
    """Inside an optional table the mistake is named where it is."""
    with pytest.raises(ConfigError) as error:
        config.load(None, run_class, table={"model": {"hidden_size": 8, "head": {"size": "x"}}})
    assert [path for path, _ in error.value.mistakes] == ["model.head.size"]


def test_enums_read_by_value(run_class):
    """An enum field takes a member's value and lists the others."""
    table = {"model": {"hidden_size": 8}, "colour": "blue"}
    assert config.load(None, run_class, table=table).value.colour.name == "BLUE"
    with pytest.raises(ConfigError, match="expected 'red' or 'blue', got 'blu'; did you mean 'blue'"):
        config.load(None, run_class, table=table | {"colour": "blu"})


def test_text_from_the_command_line_stays_text_where_text_is_due():
    """--set name=12 is a number to TOML, and still the text "12" for a field of text."""
    assert read(str, 12, text="12") == ("12", [])
    assert read(Path, 1e5, text="1e5") == (Path("1e5"), [])
    assert read(int, 12, text="12") == (12, [])


def test_a_field_that_no_configuration_can_hold_is_our_mistake():
    """A field of an unreadable type fails loudly instead of blaming the user."""

    @dataclass(frozen=True)
    class Odd:
        x: complex = 0j

    with pytest.raises(TypeError, match=r"x: a configuration cannot hold"):
        config.load(None, Odd, table={"x": 1})
