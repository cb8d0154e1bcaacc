from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.view.adding import apportion, bytes_printed, seconds_printed

amounts = st.dictionaries(
    st.sampled_from("abcdefghijklmno"), st.floats(0, 1e4, allow_subnormal=False), min_size=1, max_size=15
)


def read(text):
    return Fraction(text.replace(",", ""))


@given(amounts)
def test_printed_parts_add_up_to_the_printed_total(seconds):
    """A reader who adds the printed parts gets the printed total, to the last digit."""
    printed = seconds_printed(seconds)
    assert sum(read(text) for text in printed.parts.values()) == read(printed.total)


@given(amounts)
def test_no_part_is_off_by_a_unit_of_the_last_place(seconds):
    """A part is cut or raised, never more than to the next printed number."""
    printed = seconds_printed(seconds)
    places = len(printed.total.partition(".")[2])
    scale = {"s": 1, "ms": 1e3, "µs": 1e6}[printed.unit]
    for name, text in printed.parts.items():
        assert abs(float(read(text)) - seconds[name] * scale) <= 10**-places * (1 + 1e-6)


@given(amounts.filter(lambda seconds: sum(seconds.values()) > 1e-9))
def test_percents_add_up_to_100(seconds):
    """Shares of the total add up to 100.0 as printed."""
    assert sum(read(text) for text in seconds_printed(seconds).percents.values()) == 100


@pytest.mark.parametrize(
    ("num_bytes", "whole"),
    [(3 * 2**30 + 2**29, "3.500 GiB"), (75 * 2**30, "75.00 GiB"), (2**20, "1.000 MiB"), (100, "0.098 KiB")],
)
def test_memory_is_in_binary_units(num_bytes, whole):
    """GiB from one GiB on, four figures."""
    assert bytes_printed({"all": num_bytes}).whole == whole


@pytest.mark.parametrize(("seconds", "whole"), [(12.344, "12.34 s"), (0.5, "500.0 ms"), (2e-5, "20.00 µs")])
def test_seconds_are_in_the_unit_that_leaves_one(seconds, whole):
    """s, ms or µs, whichever is the largest with at least one of it."""
    assert seconds_printed({"all": seconds}).whole == whole


def test_nothing_is_zero_everywhere():
    """A step without seconds has parts of 0 and shares of 0."""
    printed = seconds_printed({"matmul": 0.0})
    assert (float(printed.total), float(printed.parts["matmul"]), printed.percents["matmul"]) == (0, 0, "0.0")


def test_equal_parts_differ_by_at_most_one_unit():
    """Three thirds of a whole are cut to 3 + 3 + 4 tenths."""
    assert sorted(apportion({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}, 1).values()) == [3, 3, 4]
