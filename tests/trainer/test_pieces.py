import hashlib
import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchledger.trainer import pieces as room
from torchledger.trainer.pieces import pieces
from torchledger.trainer.sources import SourceError, find_sources
from torchledger.trainer.split import Split, choose_split
from torchledger.trainer.tokenizer import END_OF_TEXT

text_or_mark = st.lists(st.text("aß☃\n", max_size=8) | st.just(END_OF_TEXT), max_size=12).map("".join).filter(bool)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pieces")


def documents(stream):
    """Per part, the texts of its documents."""
    parts, held = ([], []), ["", ""]
    for piece in stream:
        held[piece.validation] += piece.text
        if piece.ends_document:
            parts[piece.validation].append(held[piece.validation])
            held[piece.validation] = ""
    assert held == ["", ""]
    return parts


def write(folder, text):
    path = folder / "only.txt"
    path.write_bytes(text.encode())
    return find_sources(path)


def test_each_file_is_a_document(tmp_path):
    """A folder's files are documents, whole, each in its part; a mark spelled out in them is text."""
    texts = {"a": f"one{END_OF_TEXT}\n", "b": "two", "c": "three\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    train, validation = documents(pieces(find_sources(tmp_path), Split("file", 0.5, 0, frozenset("b"))))
    assert train == [texts["a"], texts["c"]]
    assert validation == [texts["b"]]


@settings(max_examples=200)
@given(text=text_or_mark, fraction=st.floats(0.05, 0.95), block=st.integers(1, 30))
def test_slice_loses_nothing(folder, text, fraction, block):
    """Wherever a file is cut and however it is read, the two parts are its text but for marks, and all is counted."""
    sources = write(folder, text)
    split = choose_split(sources, fraction, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "BLOCK_BYTES", block)
        found = list(pieces(sources, split))
    assert "".join(piece.text for piece in found) == text.replace(END_OF_TEXT, "")
    assert sum(piece.num_bytes for piece in found) == len(text.encode())
    sides = [piece.validation for piece in found if piece.text]
    assert sides == sorted(sides)  # training first, then validation


def test_slice_begins_with_a_line(folder):
    """The cut moves on to the next line's start; where there is none, it falls between characters."""
    cases = {
        "aaa\nbbb\nccc\nddd\n": (["aaa\nbbb\n"], ["ccc\nddd\n"]),  # byte 8 starts a line
        "aaa\nbbbb\nccc\nddd": (["aaa\nbbbb\n"], ["ccc\nddd"]),  # byte 8 is within "bbbb\n"
        "☃☃☃": (["☃☃"], ["☃"]),  # byte 5 is within the second
        "aa\n": (["aa"], ["\n"]),  # the only line's end is the file's
    }
    for text, parts in cases.items():
        sources = write(folder, text)
        assert tuple(documents(pieces(sources, choose_split(sources, 0.5, 0)))) == parts, text


def test_marks_end_documents_in_a_slice(folder):
    """In a file with a few end-of-text marks, each ends a document, in both parts."""
    text = f"a\n{END_OF_TEXT}b\n{END_OF_TEXT}c\nd\n{END_OF_TEXT}e"
    sources = write(folder, text)
    split = Split("slice", 0.1, 0, first_validation_byte=text.index("\nd") + 1)
    train, validation = documents(pieces(sources, split))
    assert [part for part in train if part] == ["a\n", "b\n", "c\n"]
    assert [part for part in validation if part] == ["d\n", "e"]


@given(num=st.integers(1, 30), block=st.integers(1, 40), seed=st.integers(0, 99))
def test_documents_are_whole_in_one_part(folder, num, block, seed):
    """Split by documents, each document is in one part, in order, however the file is read; every byte is counted."""
    texts = [f"{i}\nä\n" for i in range(num)]
    sources, split = write(folder, END_OF_TEXT.join(texts)), Split("document", 0.3, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "BLOCK_BYTES", block)
        found = list(pieces(sources, split))
    parts = documents(found)
    assert parts[0] == [text for i, text in enumerate(texts) if not split.validates_document(i)]
    assert parts[1] == [text for i, text in enumerate(texts) if split.validates_document(i)]
    assert sum(piece.num_bytes for piece in found) == sources.num_bytes


def test_long_lines_come_in_pieces(folder, monkeypatch):
    """A line longer than what is held is cut, but never within an end-of-text mark."""
    monkeypatch.setattr(room, "BLOCK_BYTES", 7)
    monkeypatch.setattr(room, "LONGEST_LINE", 20)
    texts = [f"{i:07}" * 9 for i in range(9)]
    found = list(pieces(write(folder, END_OF_TEXT.join(texts)), split := Split("document", 0.5, 0)))
    assert list(itertools.chain(*documents(found))) == sorted(
        texts, key=lambda t: (split.validates_document(texts.index(t)), t)
    )
    assert max(len(piece.text) for piece in found) <= 20 + 7


def test_a_changed_file_is_noticed(tmp_path):
    """A file that is not what was hashed, or is gone, stops the preparation."""
    path = tmp_path / "a.txt"
    path.write_text("old")
    sources = find_sources(path)
    path.write_text("new")
    with pytest.raises(SourceError, match="has changed"):
        list(pieces(sources, choose_split(sources, 0.5, 0)))
    Path(path).unlink()
    with pytest.raises(SourceError, match="cannot read"):
        list(pieces(sources, choose_split(sources, 0.5, 0)))
    assert sources.files[0].sha256 == hashlib.sha256(b"old").hexdigest()
