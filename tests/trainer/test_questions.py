import json

import pytest

from torchledger.trainer.questions import ChoicesError, Question, read_questions

GOOD = {"context": "a b", "endings": ["c", "d"], "label": 1}


def write(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_both_spellings_of_hellaswag_are_read(tmp_path):
    """`ctx` is a context, a label may be a text of digits, empty lines are none; further fields are passed over."""
    raw = {"ind": 4, "activity_label": "x", "ctx": "a b", "endings": ["c", "d"], "label": "1"}
    path = write(tmp_path / "q.jsonl", GOOD, "", raw)
    assert read_questions(path) == (Question("a b", ("c", "d"), 1),) * 2


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{broken", "Expecting property name"),
        ("[]", "no object"),
        ({**GOOD, "context": 3}, "context (or ctx) must be a text"),
        ({**GOOD, "endings": ["one"]}, "at least two"),
        ({**GOOD, "endings": ["one", ""]}, "none of them empty"),
        ({**GOOD, "endings": "one"}, "must be a list"),
        ({**GOOD, "label": 2}, "label must be 0 to 1, is 2"),
        ({**GOOD, "label": True}, "label must be 0 to 1, is True"),
        ({**GOOD, "label": ""}, "label must be 0 to 1"),
    ],
)
def test_a_wrong_row_is_named_with_what_is_wrong(tmp_path, row, message):
    """The number of the line and the mistake in it."""
    with pytest.raises(ChoicesError) as caught:
        read_questions(write(tmp_path / "q.jsonl", GOOD, row))
    assert "line 2" in str(caught.value)
    assert message in str(caught.value)


def test_several_mistakes_come_at_once(tmp_path):
    """The first five of seven are shown, the rest counted."""
    with pytest.raises(ChoicesError) as caught:
        read_questions(write(tmp_path / "q.jsonl", *["[]"] * 7))
    assert str(caught.value).count("line") == 5
    assert "and 2 more" in str(caught.value)


def test_a_file_that_is_none_is_told(tmp_path):
    """Missing, empty, and not UTF-8."""
    with pytest.raises(ChoicesError, match="No such file"):
        read_questions(tmp_path / "none.jsonl")
    with pytest.raises(ChoicesError, match="no question"):
        read_questions(write(tmp_path / "empty.jsonl"))
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff")
    with pytest.raises(ChoicesError, match="not UTF-8"):
        read_questions(tmp_path / "bytes.jsonl")
