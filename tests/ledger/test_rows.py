"""Ledgers out and in: nothing is lost, nothing is read that was not written."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchledger.ledger import (
    WORK_FIELDS,
    Convention,
    Ledger,
    LedgerFormatError,
    Line,
    Work,
    from_csv,
    from_json,
    to_csv,
    to_dict,
    to_json,
)

finite = st.floats(allow_nan=False, allow_infinity=False)
amounts = st.one_of(st.none(), st.integers(-(10**30), 10**30), finite)
words = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x00"), max_size=6)
names = st.text("abcdefghijklmnop_", min_size=1, max_size=6)
lines = st.builds(
    Line,
    words,
    words,
    st.builds(Work, *[amounts] * len(WORK_FIELDS)),
    st.sampled_from(["matmul", "attention", "loss", "unknown"]),
    st.sampled_from(["forward", "backward", "optimizer", "communication"]),
    st.sampled_from(["input", "weight", "none"]),
    st.sampled_from(["fp32", "bf16"]),
    st.lists(st.tuples(names, st.integers(0, 10**15)), max_size=4).map(tuple),
    st.integers(1, 10**6),
    st.sampled_from(["formula", "trace", "measured", "difference"]),
    words,
)
few = settings(max_examples=40, deadline=None)  # a ledger is a big thing to draw
conventions = st.builds(
    Convention,
    st.sampled_from(["contractions", "all"]),
    st.sampled_from(["full", "exact", "executed"]),
    st.booleans(),
    st.booleans(),
)
ledgers = st.builds(Ledger, st.lists(lines, max_size=6).map(tuple), conventions, st.lists(words, max_size=3).map(tuple))


def _whole(ledger):
    """Everything in a ledger, the types of its amounts too: 2 and 2.0 are not the same."""
    types = [type(amount) for line in ledger for amount in line.work.amounts()]
    return ledger.lines, types, ledger.convention, ledger.assumptions


@few
@given(ledgers)
def test_json_gives_back_every_line_to_the_last_digit(ledger):
    assert _whole(from_json(to_json(ledger))) == _whole(ledger)
    assert _whole(from_json(to_json(ledger, indent=2))) == _whole(ledger)


@few
@given(ledgers)
def test_csv_gives_back_every_line_to_the_last_digit(ledger):
    assert _whole(from_csv(to_csv(ledger))) == _whole(ledger)


LEDGER = Ledger((Line("a", "matmul", Work.of_flops(10**20), "matmul", shape=(("m", 2), ("n", 3))),))


def test_integers_beyond_float_precision_are_written_in_full():
    assert "100000000000000000000" in to_json(LEDGER)
    assert from_json(to_json(LEDGER)).flops == 10**20


def test_the_answer_says_its_schema_convention_and_whether_it_is_complete():
    data = to_dict(LEDGER)
    assert data["schema"] == "torchledger.ledger/1"
    assert data["convention"]["attention"] == "full"
    assert data["is_complete"] is True
    assert data["lines"][0]["shape"] == "m=2 n=3"


@pytest.mark.parametrize("schema", ["torchledger.ledger/2", "torchledger.plan/1", None])
def test_another_schema_is_refused_by_name(schema):
    data = to_dict(LEDGER) | {"schema": schema}
    with pytest.raises(LedgerFormatError, match=r"torchledger\.ledger/1") as error:
        from_json(json.dumps(data))
    assert repr(schema) in str(error.value)
    with pytest.raises(LedgerFormatError, match="schema"):
        from_csv(to_csv(LEDGER).replace("torchledger.ledger/1", str(schema)))


def _changed(**fields):
    data = to_dict(LEDGER)
    data["lines"][0] |= fields
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "not a ledger"),
        ("{}", "not a ledger"),
        (_changed(kind="mat mul"), "line 0: kind is 'mat mul', expected one of matmul"),
        (_changed(phase=""), "line 0: phase"),
        (_changed(flops_full="many"), "line 0: flops_full is 'many'"),
        (_changed(flops_full=True), "flops_full"),
        (_changed(times=None), "line 0: times is missing"),
        (_changed(shape=3), "line 0: shape is 3"),
        (json.dumps(to_dict(LEDGER) | {"lines": [{}]}), "missing"),
        (json.dumps(to_dict(LEDGER) | {"lines": 5}), "missing or unknown"),
        (json.dumps(to_dict(LEDGER) | {"convention": {"attention": "half"}}), "convention attention is 'half'"),
        (json.dumps(to_dict(LEDGER) | {"convention": {"colour": 1}}), "colour"),
    ],
)
def test_a_broken_json_is_refused_with_what_is_wrong(text, message):
    with pytest.raises(LedgerFormatError, match=message):
        from_json(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.partition("\n")[2], "first line"),
        (lambda text: "# {\n" + text.partition("\n")[2], "not JSON"),
        (lambda text: "# 5\n" + text.partition("\n")[2], "JSON object"),
        (lambda text: text.rstrip("\n").rpartition(",")[0] + "\n", "line 0"),
        (lambda text: text.rstrip("\n") + ",1\n", "line 0"),
        (lambda text: text.replace("op,kind", "op,sort", 1), "kind"),
    ],
)
def test_a_broken_csv_is_refused_with_what_is_wrong(change, message):
    with pytest.raises(LedgerFormatError, match=message):
        from_csv(change(to_csv(LEDGER)))
