import json

import pytest

from torchledger.trainer import unfinished as room
from torchledger.trainer.tokenizer import ByteTokenizer
from torchledger.trainer.tokenwriter import TokenFileWriter
from torchledger.trainer.unfinished import NAME, Journal, Unfinished


@pytest.fixture
def writers(tmp_path):
    """A training file of two documents, and an empty validation file."""
    with (
        TokenFileWriter(tmp_path / "a", vocab_size=257, end_of_text_id=256, tokenizer_hash="t") as train,
        TokenFileWriter(tmp_path / "b", vocab_size=257, end_of_text_id=256, tokenizer_hash="t") as validation,
    ):
        for document in ([1, 2], [3]):
            train.write(document)
            train.end_document()
        yield train, validation


def test_what_is_noted_is_read(tmp_path, writers, monkeypatch):
    """How far it was comes back, for the same inputs only, and is gone once the preparation is done."""
    monkeypatch.setattr(room, "INTERVAL_S", 0.0)
    journal = Journal(tmp_path, "inputs", ByteTokenizer(), ("said",))
    assert not journal.is_begun
    journal.note(3, writers, [30, 0])
    assert journal.is_begun
    done = Unfinished("inputs", ByteTokenizer().to_json(), ("said",), 3, (5, 0), (2, 0), (30, 0))
    assert Unfinished.read(tmp_path, "inputs") == done
    assert Unfinished.read(tmp_path, "others") is None
    journal.close()
    journal.close()
    assert Unfinished.read(tmp_path, "inputs") is None


def test_it_is_not_noted_too_often(tmp_path, writers):
    """Within the interval nothing is written."""
    journal = Journal(tmp_path, "inputs", ByteTokenizer(), ())
    journal.note(3, writers, [30, 0])
    assert not journal.is_begun


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b'{"inputs_hash": "inputs"}', b"3"])
def test_a_damaged_page_is_none(tmp_path, content):
    """A page that makes no sense means that all is done anew."""
    (tmp_path / NAME).write_bytes(content)
    assert Unfinished.read(tmp_path, "inputs") is None


def test_a_tokenizer_that_cannot_be_read_is_none(tmp_path, writers, monkeypatch):
    """So does a tokenizer that is none."""
    monkeypatch.setattr(room, "INTERVAL_S", 0.0)
    Journal(tmp_path, "inputs", ByteTokenizer(), ()).note(3, writers, [30, 0])
    row = json.loads((tmp_path / NAME).read_text())
    (tmp_path / NAME).write_text(json.dumps(row | {"tokenizer": "none"}))
    assert Unfinished.read(tmp_path, "inputs") is None
