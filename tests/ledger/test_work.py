"""`Work`: small arithmetic in which unknown is not zero."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.ledger import NO_WORK, WORK_FIELDS, Work, total

known = st.integers(-(10**24), 10**24)
amounts = st.one_of(st.none(), known)
works = st.builds(Work, *[amounts] * len(WORK_FIELDS))
known_works = st.builds(Work, *[known] * len(WORK_FIELDS))


@given(known_works, known_works)
def test_adding_and_taking_away_gives_back_what_was_there(a, b):
    assert a + b - b == a


@given(works, works, works)
def test_sums_do_not_depend_on_order_or_brackets(a, b, c):
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)


@given(works)
def test_no_work_changes_nothing(a):
    assert a + NO_WORK == a
    assert a - NO_WORK == a


@given(works, st.integers(0, 50))
def test_scaling_is_repeated_addition(a, n):
    """A field that is unknown once is unknown n times, also for n = 0: nobody knows what it was."""
    repeated = total([a] * n)
    for name in WORK_FIELDS:
        if getattr(a, name) is None:
            assert getattr(a * n, name) is None
        else:
            assert getattr(a * n, name) == getattr(repeated, name)
    assert n * a == a * n


@given(works, works)
def test_an_unknown_field_stays_unknown_through_sum_and_difference(a, b):
    for result in (a + b, a - b):
        assert set(result.unknown_fields) == set(a.unknown_fields) | set(b.unknown_fields)


@given(st.lists(works))
def test_the_total_is_the_sum_of_its_parts(parts):
    whole = total(parts)
    for name in WORK_FIELDS:
        values = [getattr(part, name) for part in parts]
        assert getattr(whole, name) == (None if None in values else sum(values))


def test_work_of_flops_is_full_exact_and_executed_alike():
    assert Work.of_flops(12, bytes_read=3) == Work(12, 12, 12, bytes_read=3)


def test_bytes_moved_is_read_plus_written_and_unknown_where_one_is():
    assert Work(bytes_read=3, bytes_written=4).bytes_moved == 3 + 4
    assert Work(bytes_read=3, bytes_written=None).bytes_moved is None
    assert Work(bytes_read=None, bytes_written=4).bytes_moved is None


def test_only_known_zeros_are_zero():
    assert Work().is_zero
    assert not Work(bytes_sent=None).is_zero
    assert not Work(bytes_sent=1).is_zero


def test_the_text_names_what_is_not_zero():
    assert repr(Work(flops_full=2, bytes_kept=None)) == "Work(flops_full=2, bytes_kept=None)"
    assert repr(Work()) == "Work()"


def test_work_is_not_added_to_a_number():
    with pytest.raises(TypeError):
        Work() + 1
