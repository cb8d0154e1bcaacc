import itertools
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.trainer.durable import partial_path
from torchledger.trainer.tokenfile import TokenFile, TokenFileError
from torchledger.trainer.tokenwriter import TokenFileWriter


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def writer(path, vocab_size=300, end_of_text_id=299):
    return TokenFileWriter(path, vocab_size=vocab_size, end_of_text_id=end_of_text_id, tokenizer_hash="hash")


def write(path, documents, **options):
    with writer(path, **options) as out:
        for document in documents:
            out.write(document)
            out.end_document()
    return TokenFile.open(path, verify=True)


def test_documents_end_with_end_of_text(tmp_path):
    """Each document is followed by the end-of-text id, which belongs to it."""
    token_file = write(tmp_path / "x", [[1, 2], [3]])
    assert token_file.read(0, 5).tolist() == [1, 2, 299, 3, 299]
    assert token_file.document_offsets().tolist() == [0, 3, 5]


def test_no_end_of_text(tmp_path):
    """Without an end-of-text id documents touch, and only the offsets tell them apart."""
    token_file = write(tmp_path / "x", [[1, 2], [3]], end_of_text_id=None)
    assert token_file.read(0, 3).tolist() == [1, 2, 3]
    assert token_file.document_offsets().tolist() == [0, 2, 3]


def test_empty_documents_are_no_documents(tmp_path):
    """A document without tokens leaves neither an end-of-text id nor an offset."""
    token_file = write(tmp_path / "x", [[], [1], []])
    assert token_file.document_offsets().tolist() == [0, 2]


def test_nothing_written(tmp_path):
    """A file without any token is a token file."""
    assert write(tmp_path / "x", []).num_tokens == 0


def test_last_document_may_be_open(tmp_path):
    """Ids after the last end of a document are a document."""
    with writer(tmp_path / "x") as out:
        out.write([1])
    assert TokenFile.open(tmp_path / "x", verify=True).read(0, 2).tolist() == [1, 299]


@given(st.lists(st.lists(st.integers(0, 298), max_size=20), max_size=10))
def test_round_trip(tmp_path_factory, documents):
    """Documents written are documents read, empty ones left out."""
    token_file = write(tmp_path_factory.mktemp("round") / "x", documents)
    offsets = token_file.document_offsets().tolist()
    read = [token_file.read(a, b - a).tolist() for a, b in itertools.pairwise(offsets)]
    assert read == [[*document, 299] for document in documents if document]


@pytest.mark.parametrize(("vocab_size", "itemsize"), [(65_535, 2), (65_536, 2), (65_537, 4)])
def test_largest_id_survives_the_dtype_boundary(tmp_path, vocab_size, itemsize):
    """The largest id of a vocabulary around 2**16 is stored whole, and the next one is refused."""
    token_file = write(tmp_path / "x", [[0, vocab_size - 1]], vocab_size=vocab_size, end_of_text_id=0)
    assert token_file.header.itemsize == itemsize
    assert token_file.read(0, 3).tolist() == [0, vocab_size - 1, 0]
    with pytest.raises(TokenFileError, match="outside the vocabulary"), writer(tmp_path / "y", vocab_size, 0) as out:
        out.write([vocab_size])
    assert not (tmp_path / "y").exists()


@pytest.mark.parametrize("bad", [300, -1, 2**40])
def test_bad_id_is_named_with_its_place(tmp_path, bad):
    """An id outside the vocabulary is refused with its value, position and document."""
    message = rf"token id {bad:,} at position 4 \(document 1\) is outside the vocabulary of 300"
    with pytest.raises(TokenFileError, match=message):
        write(tmp_path / "x", [[1, 2], np.array([5, bad])])
    assert names(tmp_path) == []


@pytest.mark.parametrize("bad", [[1.5], [[1, 2]], np.array([1.0]), ["a"]])
def test_ids_are_flat_whole_numbers(tmp_path, bad):
    """Fractions, text and nested lists are no token ids."""
    with pytest.raises(TokenFileError, match="whole numbers"), writer(tmp_path / "x") as out:
        out.write(bad)


def test_end_of_text_is_in_the_vocabulary(tmp_path):
    """An end-of-text id beyond the vocabulary is refused at once."""
    with pytest.raises(TokenFileError, match="end-of-text id 300"):
        writer(tmp_path / "x", end_of_text_id=300)


def test_an_exception_leaves_the_old_file(tmp_path):
    """An exception while writing leaves what stood there, and nothing half."""
    write(tmp_path / "x", [[1, 2, 3]])

    def documents():
        yield [7] * 100_000
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "x", documents())
    assert TokenFile.open(tmp_path / "x", verify=True).read(0, 4).tolist() == [1, 2, 3, 299]
    assert names(tmp_path) == ["x"]


def test_two_writers_are_refused(tmp_path):
    """A second writer of the same file is refused while the first lives, and welcome afterwards."""
    with writer(tmp_path / "x") as out:
        out.write([1])
        with pytest.raises(TokenFileError, match="another process"):
            writer(tmp_path / "x")
    assert write(tmp_path / "x", [[2]]).read(0, 1).tolist() == [2]


def test_folder_missing(tmp_path):
    """A folder that is not there is a clear error."""
    with pytest.raises(TokenFileError, match="cannot write"):
        writer(tmp_path / "no" / "x")


KILLED = """
import os, signal, sys
from torchledger.trainer.tokenwriter import TokenFileWriter
with TokenFileWriter(sys.argv[1], vocab_size=300, end_of_text_id=299, tokenizer_hash="hash") as out:
    for _ in range(50):
        out.write([9] * 10_000)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_leaves_no_half_file(tmp_path):
    """A writer killed in the middle leaves the old file whole; the next writer reuses the partial one."""
    path = tmp_path / "x"
    write(path, [[1, 2, 3]])
    process = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert process.returncode == -signal.SIGKILL
    assert partial_path(path).stat().st_size > 4096
    assert TokenFile.open(path, verify=True).read(0, 4).tolist() == [1, 2, 3, 299]
    assert write(path, [[4]]).read(0, 2).tolist() == [4, 299]
    assert names(tmp_path) == ["x"]


FULL = """
import resource, sys
from torchledger.trainer.tokenwriter import TokenFileWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (19_900, resource.RLIM_INFINITY))
try:
    with TokenFileWriter(sys.argv[1], vocab_size=300, end_of_text_id=299, tokenizer_hash="hash") as out:
        for _ in range(int(sys.argv[2])):
            out.write([9] * 100)
except ValueError as error:
    sys.exit(str(error))
"""


# 79 writes of 100 ids end at byte 4,096 + 79 · 200 = 19,896 of the 19,900 allowed: the end of the document fits, the
# offsets do not. 200 writes do not fit themselves.
@pytest.mark.parametrize("writes", [79, 200])
def test_a_full_disk_leaves_the_old_file(tmp_path, writes):
    """A disk that takes no more, while writing or while finishing, is a clear error; the old file stays whole."""
    path = tmp_path / "x"
    write(path, [[1, 2, 3]])
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", FULL, str(path), str(writes)], check=False, capture_output=True, text=True
    )
    assert process.returncode == 1
    assert process.stderr.startswith("cannot ")
    assert "File too large" in process.stderr
    assert "Traceback" not in process.stderr
    assert TokenFile.open(path, verify=True).read(0, 4).tolist() == [1, 2, 3, 299]
    assert names(tmp_path) == ["x"]


@pytest.mark.parametrize("kept", [0, 1, 3, 4, 6])
def test_going_on_gives_the_uninterrupted_file(tmp_path, kept):
    """A writer that keeps the first tokens of a partial file and writes the rest gives the same bytes as one alone."""
    ids = [1, 2, 299, 3, 299, 4]

    def writer(name, **options):
        return TokenFileWriter(tmp_path / name, vocab_size=300, end_of_text_id=299, tokenizer_hash="t", **options)

    def write(out, some):
        for i in some:
            out.end_document() if i == 299 else out.write([i])

    with writer("whole") as out:
        write(out, ids)
    killed = writer("x")
    write(killed, ids)
    killed.sync()
    killed.leave()
    with writer("x", keep_tokens=kept) as out:
        assert (out.num_tokens, out.num_documents) == (kept, ids[:kept].count(299))
        write(out, ids[kept:])
    assert (tmp_path / "x").read_bytes() == (tmp_path / "whole").read_bytes()


def test_tokens_that_are_not_there_cannot_be_kept(tmp_path):
    """A partial file that is shorter than what should be kept, or none, is told."""
    options = {"vocab_size": 300, "end_of_text_id": 299, "tokenizer_hash": "t"}
    with pytest.raises(TokenFileError, match="has not the 3 ids"):
        TokenFileWriter(tmp_path / "x", keep_tokens=3, **options)
    with TokenFileWriter(tmp_path / "x", **options) as out:
        out.write([1])
