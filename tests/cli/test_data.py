import hashlib

import numpy as np
import pytest

from torchledger.trainer.prepare import prepare

IDS = [5, 9, 7, 9, 3]


@pytest.fixture
def folder(tmp_path):
    """Eight small texts, prepared as bytes."""
    (tmp_path / "texts").mkdir()
    for number in range(8):
        (tmp_path / "texts" / f"{number}.txt").write_text(f"file {number} says hello\n" * 3)
    return prepare(tmp_path / "texts", tmp_path / "data", tokenizer="bytes", validation_fraction=0.25).folder


@pytest.fixture
def headerless(tmp_path):
    """Five 16-bit ids and nothing else."""
    path = tmp_path / "train.bin"
    path.write_bytes(np.array(IDS, np.uint16).tobytes())
    return path


def test_a_prepared_folder_is_proven(ask, folder):
    """Both parts are read to the last id, and their numbers are those of the folder's own page."""
    answer = ask("data", "verify", folder)
    assert answer.code == 0
    assert "2 token files read to the last id" in answer.out
    files = ask("data", "verify", folder, "--json").json["answer"]["files"]
    assert [file["is_proven"] for file in files] == [True, True]
    assert sum(file["documents"]["num_documents"] for file in files) == 8
    assert sum(file["num_tokens"] for file in files) == 8 * (3 * len("file 0 says hello\n") + 1)


def test_a_headerless_file_is_read_as_told(ask, headerless):
    """With type, vocabulary and end of text told, its ids and documents are counted; nothing proves a checksum."""
    told = ("--dtype", "uint16", "--vocab-size", 10, "--end-of-text", 9)
    (file,) = ask("data", "verify", headerless, *told, "--json").json["answer"]["files"]
    assert (file["format"], file["largest_id"], file["is_proven"]) == ("headerless", 9, False)
    assert file["documents"] == {"num_documents": 3, "shortest": 1, "median": 2, "mean": 5 / 3, "longest": 2}
    assert file["ids_sha256"] == hashlib.sha256(headerless.read_bytes()).hexdigest()


def test_every_fault_is_told_and_every_file_read(ask, folder, headerless, tmp_path):
    """A damaged file, a missing one and one of no known type are each a message; what is whole is still shown."""
    with (folder / "train.tokens").open("r+b") as stream:
        stream.seek(4096)
        stream.write(b"\x01")
    paths = (folder, headerless, tmp_path / "nothing.tokens")
    answer = ask("data", "verify", *paths)
    assert answer.code == 1
    for words in ("checksum of its token ids", "no header known here", "no token file at"):
        assert words in answer.err
    assert "1 token files read" in answer.out
    faults = ask("data", "verify", *paths, "--json").json["answer"]["faults"]
    assert [fault["path"] for fault in faults] == [str(p) for p in (folder / "train.tokens", headerless, paths[2])]


def test_the_pages_of_a_folder_are_proven_too(ask, folder):
    """A digit that has changed in either page, or a page that is gone, is a fault by its name, with exit code 1."""
    for name, digit in (("prepare.json", b'"num_files": 8'), ("sources.json", b'"name": "3.txt"')):
        whole = (folder / name).read_bytes()
        assert digit in whole
        (folder / name).write_bytes(whole.replace(digit, digit.replace(b"8", b"9").replace(b"3.t", b"9.t")))
        answer = ask("data", "verify", folder)
        assert answer.code == 1
        assert f"{name} is damaged" in answer.err
        (folder / name).unlink()
        assert name in ask("data", "verify", folder).err
        (folder / name).write_bytes(whole)
    assert ask("data", "verify", folder).code == 0


def test_an_id_beyond_the_vocabulary_is_a_fault(ask, headerless):
    """With a vocabulary of 9, id 9 at position 1 is one too many."""
    answer = ask("data", "verify", headerless, "--dtype", "uint16", "--vocab-size", 9)
    assert answer.code == 1
    assert "token id 9 at position 1, beyond its vocabulary of 9" in answer.err


def test_a_document_is_shown_as_text(ask, folder):
    """The tokenizer beside the file turns ids into text; a document is its ids from start to end."""
    answer = ask("data", "show", folder, "--document", 2)
    assert answer.code == 0
    assert "says hello" in answer.out
    found = ask("data", "show", folder, "--document", 2, "--json").json["answer"]
    assert found["text"] == bytes(found["ids"][:-1]).decode() + "<|endoftext|>"
    assert found["ids"][-1] == found["end_of_text_id"] == 256
    assert found["start"] == 2 * (3 * len("file 0 says hello\n") + 1)
    short = ask("data", "show", folder, "--document", 2, "--count", 4, "--json").json["answer"]
    assert short["ids"] == found["ids"][:4]


def test_ids_are_shown_from_anywhere(ask, headerless):
    """Start and count cut the ids out, and no more than there are."""
    words = ("data", "show", headerless, "--dtype", "uint16", "--json")
    assert ask(*words).json["answer"]["ids"] == IDS
    assert ask(*words, "--start", 1, "--count", 2).json["answer"]["ids"] == [9, 7]
    assert ask(*words, "--start", 4, "--count", 99).json["answer"]["ids"] == IDS[4:]
    assert ask(*words).json["answer"]["text"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--document", 8, "--dtype", "uint16", "--end-of-text", 9), "has 3 documents, counted from 0"),
        (("--document", 0, "--dtype", "uint16"), "nothing tells where the documents"),
        (("--start", 5, "--dtype", "uint16"), "has 5 ids, counted from 0; asked for 5"),
        (("--dtype", "float16"), "'float16' is not one of 'uint8', 'int8', 'uint16'"),
        ((), "say their type"),
    ],
)
def test_a_wrong_question_is_exit_code_2(ask, headerless, words, message):
    """A document or position that is not there or cannot be found, a type that is none or is not told."""
    answer = ask("data", "show", headerless, *words)
    assert answer.code == 2
    assert message in answer.err


def test_a_type_that_is_none_is_a_wrong_question_to_both(ask, headerless):
    """`verify` and `show` are exit code 2 for a type that no ids are made of: nothing is wrong with the file."""
    for name in ("verify", "show"):
        answer = ask("data", name, headerless, "--dtype", "float")
        assert answer.code == 2
        assert "'float' is not one of 'uint8', 'int8', 'uint16'" in answer.err
