import json

import pytest

from torchledger import formats
from torchledger.formats import FormatError


@pytest.mark.parametrize("fmt", formats.every(), ids=lambda fmt: fmt.name)
def test_descriptions_are_plain_rows(fmt):
    """A row has the properties of its format, and is JSON."""
    row = formats.describe(fmt)
    assert json.loads(json.dumps(row)) == row
    assert row["name"] == fmt.name
    assert row["bytes_per_element"] == fmt.bytes_per_element
    assert row["max"] == fmt.max


@pytest.mark.parametrize("fmt", [*formats.known(), formats.get("e8m0")], ids=lambda fmt: fmt.name)
def test_a_floating_row_adds_up(fmt):
    """The fields are all bits, and epsilon is 2 to the minus mantissa bits."""
    row = formats.describe(fmt)
    assert row["bits"] == row["sign_bits"] + row["exponent_bits"] + row["mantissa_bits"]
    assert row["bits"] == len(row["layout"].replace(" ", ""))
    assert row["epsilon"] == 2.0 ** -row["mantissa_bits"]


def test_ranges():
    """E4M3 goes to ±448, E5M2 to ±57,344; scales are positive; INT8 has one more below zero."""
    ranges = {name: (formats.describe(name)["min"], formats.describe(name)["max"]) for name in ("e4m3", "e5m2", "int8")}
    assert ranges == {"e4m3": (-448, 448), "e5m2": (-57344, 57344), "int8": (-128, 127)}
    assert formats.describe("e8m0")["min"] == 2.0**-127
    assert formats.describe("e8m0")["smallest_subnormal"] is None


def test_descriptions_take_names():
    """A name will do; an unknown one is refused."""
    assert formats.describe("half")["name"] == "FP16"
    with pytest.raises(FormatError):
        formats.describe("quarter")
