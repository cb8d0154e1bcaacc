import hashlib
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.trainer.tokenfile import TokenFile, TokenFileError
from torchledger.trainer.tokenheader import HEADER_BYTES
from torchledger.trainer.tokenwriter import TokenFileWriter

# Two documents of 3 and 2 tokens: 5 ids of 2 bytes, 6 bytes of padding, 3 offsets of 8 bytes.
FILE_BYTES = HEADER_BYTES + 5 * 2 + 6 + 3 * 8


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "x.tokens"
    with TokenFileWriter(path, vocab_size=300, end_of_text_id=299, tokenizer_hash="hash") as out:
        for document in ([1, 2], [3]):
            out.write(document)
            out.end_document()
    return path


def patch(path, position, data):
    with path.open("r+b") as stream:
        stream.seek(position)
        stream.write(data)


def reseal(path, **changes):
    """Write the header anew, as a careless tool might that keeps the checksums right."""
    header = TokenFile.open(path).header
    payload = path.read_bytes()[HEADER_BYTES : HEADER_BYTES + header.payload_bytes]
    offsets = path.read_bytes()[header.offsets_start :]
    sums = {
        "payload_sha256": hashlib.sha256(payload).hexdigest(),
        "offsets_sha256": hashlib.sha256(offsets).hexdigest(),
    }
    patch(path, 0, replace(header, **{**sums, **changes}).to_bytes())


def test_open_and_read(path):
    """An opened file knows its tokens, vocabulary and documents, and passes its own verification."""
    token_file = TokenFile.open(path, verify=True)
    assert (token_file.num_tokens, token_file.vocab_size, token_file.header.num_documents) == (5, 300, 2)
    assert path.stat().st_size == FILE_BYTES
    assert token_file.read(1, 3).tolist() == [2, 299, 3]
    assert token_file.read(5, 0).tolist() == []


@given(st.integers(1, 7))
def test_chunks_are_the_file(tmp_path_factory, size):
    """The chunks of any size, put together, are the file."""
    path = tmp_path_factory.mktemp("chunks") / "x"
    with TokenFileWriter(path, vocab_size=70_000, end_of_text_id=0, tokenizer_hash="hash") as out:
        out.write([69_999, 5, 6, 7])
    chunks = list(TokenFile.open(path).chunks(size))
    assert [len(chunk) for chunk in chunks[:-1]] == [size] * (len(chunks) - 1)
    assert np.concatenate(chunks).tolist() == [69_999, 5, 6, 7, 0]


@pytest.mark.parametrize(("start", "count"), [(-1, 1), (0, 6), (5, 1), (0, -1)])
def test_read_beyond_the_file(path, start, count):
    """Reading what is not there is refused, with the size."""
    with pytest.raises(TokenFileError, match="has 5 tokens"):
        TokenFile.open(path).read(start, count)


def test_missing(tmp_path):
    """A missing file says what would write one."""
    with pytest.raises(TokenFileError, match=r"no token file at .*prepare"):
        TokenFile.open(tmp_path / "no.tokens")


def test_folder_names_the_files_in_it(path):
    """A folder is no token file, but may hold some."""
    with pytest.raises(TokenFileError, match=r"is a folder, not a token file; the token files in it: x\.tokens"):
        TokenFile.open(path.parent)


def test_empty(tmp_path):
    """An empty file is called empty."""
    (tmp_path / "x").touch()
    with pytest.raises(TokenFileError, match="is empty"):
        TokenFile.open(tmp_path / "x")


@pytest.mark.parametrize("kept", [HEADER_BYTES, HEADER_BYTES + 3, FILE_BYTES - 1])
def test_truncated(path, kept):
    """A file cut anywhere behind its header says how many bytes are missing."""
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(TokenFileError, match=f"is truncated: {FILE_BYTES - kept} of {FILE_BYTES:,} bytes are missing"):
        TokenFile.open(path)


def test_too_long(path):
    """A file with something behind its end says how much."""
    patch(path, FILE_BYTES, b"abc")
    with pytest.raises(TokenFileError, match="too long: 3 bytes follow its end"):
        TokenFile.open(path)


@pytest.mark.parametrize("position", [HEADER_BYTES, HEADER_BYTES + 9])
def test_a_changed_token_is_noticed(path, position):
    """A token that changed within the vocabulary betrays itself by the checksum."""
    byte = path.read_bytes()[position]
    patch(path, position, bytes((byte ^ 1,)))
    TokenFile.open(path)
    with pytest.raises(TokenFileError, match="damaged: the checksum of its token ids"):
        TokenFile.open(path, verify=True)


def test_an_id_beyond_the_vocabulary_is_named(path):
    """An id that the vocabulary does not have is named with its position, before any checksum."""
    patch(path, HEADER_BYTES + 3 * 2, struct.pack("<H", 300))
    with pytest.raises(TokenFileError, match="token id 300 at position 3, beyond its vocabulary of 300"):
        TokenFile.open(path, verify=True)


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ((0, 4, 3), "not in order at document 1"),
        ((0, 0, 5), "not in order at document 0"),
        ((1, 3, 5), "not in order"),
        ((0, 3, 4), "not in order"),
    ],
)
def test_offsets_out_of_order(path, offsets, message):
    """Document offsets that are not a way from 0 to the number of tokens are refused, even with a good checksum."""
    patch(path, FILE_BYTES - 24, struct.pack("<3Q", *offsets))
    reseal(path)
    with pytest.raises(TokenFileError, match=message):
        TokenFile.open(path, verify=True)


def test_changed_offsets_are_noticed(path):
    """Offsets that are in order but not those written betray themselves by the checksum."""
    patch(path, FILE_BYTES - 16, struct.pack("<Q", 2))
    with pytest.raises(TokenFileError, match="checksum of its document offsets"):
        TokenFile.open(path, verify=True)


def test_a_file_that_shrinks_while_open(path):
    """A file cut after it was opened is noticed when it is read."""
    token_file = TokenFile.open(path)
    path.write_bytes(path.read_bytes()[: HEADER_BYTES + 4])
    with pytest.raises(TokenFileError, match="6 bytes missing"):
        token_file.verify()


def test_a_part_is_a_token_file_of_its_own(path):
    """Ids 1 to 4 of `1 2 end 3 end` are `2 end 3`, in documents of 2 and 1, wherever they are counted from."""
    part = TokenFile.open(path).part(1, 3)
    assert part.num_tokens == 3
    assert part.read(0, 3).tolist() == [2, 299, 3]
    assert part.read(2, 1).tolist() == [3]
    assert [chunk.tolist() for chunk in part.chunks(2)] == [[2, 299], [3]]
    assert part.documents().tolist() == [0, 2, 3]
    assert part.part(1, 2).documents().tolist() == [0, 1, 2]
    assert part.verify() == hashlib.sha256(struct.pack("<3H", 2, 299, 3)).hexdigest()
    with pytest.raises(TokenFileError, match="has 3 tokens; asked for 1 to 4"):
        part.read(1, 3)
    with pytest.raises(TokenFileError, match="has 3 tokens"):
        part.part(0, 4)


def test_documents_are_the_files_own_list(path):
    """Two documents of 3 and 2 tokens begin at 0 and 3, and end at 5."""
    assert TokenFile.open(path).documents().tolist() == [0, 3, 5]


def test_verifying_gives_the_sum_of_the_ids(path):
    """What `verify` gives back is the header's own checksum."""
    token_file = TokenFile.open(path)
    assert token_file.verify() == token_file.header.payload_sha256


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"dtype": "uint32"}, "says itself that its dtype is uint16, not uint32"),
        ({"vocab_size": 301}, "says itself that its vocab_size is 300, not 301"),
        ({"end_of_text_id": 0}, "says itself that its end_of_text_id is 299, not 0"),
    ],
)
def test_a_file_that_says_it_is_believed(path, told, message):
    """What contradicts the header is refused; what agrees is fine."""
    with pytest.raises(TokenFileError, match=message):
        TokenFile.open(path, **told)
    assert TokenFile.open(path, dtype="uint16", vocab_size=300, end_of_text_id=299) == TokenFile.open(path)
