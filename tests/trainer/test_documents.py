import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.trainer import documents
from torchledger.trainer.documents import Documents
from torchledger.trainer.tokenfile import TokenFile, TokenFileError
from torchledger.trainer.tokenwriter import TokenFileWriter

lengths = st.lists(st.integers(1, 30), min_size=1, max_size=30)


def documents_of(lengths):
    return Documents(np.cumsum([0, *lengths]))


def plain(lengths, start, length):
    """Document of each token, from a list with one entry a token; numbered from 0 within the window."""
    owner = [i for i, number in enumerate(lengths) for _ in range(number)][start : start + length]
    return [number - owner[0] for number in owner]


@given(lengths, st.integers(1, 12), st.data())
def test_numbers_are_those_of_a_walk(lengths, length, data):
    """Cut anywhere, also on a document's very beginning, each row says what walking along the tokens says."""
    total = sum(lengths)
    length = min(length, total)
    starts = data.draw(st.lists(st.integers(0, total - length), min_size=1, max_size=5))
    found = documents_of(lengths).numbers(np.array(starts), length)
    assert found.dtype == np.int64
    assert found.tolist() == [plain(lengths, start, length) for start in starts]


@given(lengths, st.integers(1, 12), st.data())
def test_squared_lengths_are_counted_pairs(lengths, length, data):
    """The sum of squares is the number of pairs of tokens with the same number in the same row."""
    length = min(length, sum(lengths))
    starts = np.array(data.draw(st.lists(st.integers(0, sum(lengths) - length), min_size=1, max_size=4)))
    rows = documents_of(lengths).numbers(starts, length).tolist()
    pairs = sum(a == b for row in rows for a, b in itertools.product(row, row))
    assert documents_of(lengths).squared_lengths(starts, length) == pairs


def test_three_documents_by_hand():
    """Windows of 8 over documents of 3, 4 and 9 tokens: 3 + 4 + 1 and 8, so 9 + 16 + 1 and 64 pairs of 64 each."""
    of = documents_of([3, 4, 9])
    assert of.numbers(np.array([0, 8]), 8).tolist() == [[0, 0, 0, 1, 1, 1, 1, 2], [0] * 8]
    assert of.squared_lengths(np.array([0]), 8) == 9 + 16 + 1
    assert of.all_squared_lengths(2, 8) == 9 + 16 + 1 + 64


def test_a_whole_file_in_pieces(monkeypatch):
    """A file of many windows, cut up few at a time, has the sum of all of them."""
    of = documents_of([7] * 40)
    whole = of.all_squared_lengths(28, 10)
    monkeypatch.setattr(documents, "MOST_WINDOWS", 3)
    assert of.all_squared_lengths(28, 10) == whole == of.squared_lengths(np.arange(28) * 10, 10)


def test_a_file_tells_its_documents(tmp_path):
    """A token file's own offsets are used; one that nothing tells the documents of is refused."""
    with TokenFileWriter(tmp_path / "x", vocab_size=50, end_of_text_id=None, tokenizer_hash="hash") as out:
        for length in (2, 5):
            out.write(range(length))
            out.end_document()
    assert Documents.of(TokenFile.open(tmp_path / "x")).numbers(np.array([0]), 7).tolist() == [[0, 0, 1, 1, 1, 1, 1]]
    (tmp_path / "y.bin").write_bytes(bytes(200))
    with pytest.raises(TokenFileError, match="nothing tells where the documents"):
        Documents.of(TokenFile.open(tmp_path / "y.bin", dtype="uint16"))
