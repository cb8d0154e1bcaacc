import json
import struct
import zlib
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.trainer.tokenheader import HEADER_BYTES, MAGIC, TokenFileError, TokenFileHeader, dtype_for

HEADER = TokenFileHeader(
    dtype="uint16",
    num_tokens=5,
    num_documents=2,
    vocab_size=300,
    end_of_text_id=299,
    tokenizer_hash="t" * 64,
    payload_sha256="p" * 64,
    offsets_sha256="o" * 64,
)
PATH = Path("x.tokens")


@pytest.mark.parametrize(
    ("vocab_size", "dtype"),
    [(1, "uint16"), (65_535, "uint16"), (65_536, "uint16"), (65_537, "uint32"), (2**32, "uint32")],
)
def test_dtype_boundary(vocab_size, dtype):
    """A vocabulary whose largest id is at most 65,535 takes two bytes a token, a larger one four."""
    assert dtype_for(vocab_size) == dtype


@pytest.mark.parametrize("vocab_size", [0, -1, 2**32 + 1])
def test_dtype_refuses(vocab_size):
    """A vocabulary that 32 bits cannot hold, or that is empty, is refused."""
    with pytest.raises(TokenFileError, match="vocabulary"):
        dtype_for(vocab_size)


def test_sizes():
    """5 ids of 2 bytes are 10, padded to 16 behind the header; 2 documents have 3 offsets of 8 bytes."""
    assert HEADER.payload_bytes == 5 * 2
    assert HEADER.offsets_start == HEADER_BYTES + 16
    assert HEADER.file_bytes == HEADER_BYTES + 16 + 3 * 8


@given(st.integers(0, 2**60), st.integers(0, 2**40), st.integers(1, 2**32), st.none() | st.integers(0, 2**32))
def test_round_trip(num_tokens, num_documents, vocab_size, end_of_text_id):
    """A header written and read is the same header, in exactly its bytes."""
    header = TokenFileHeader(
        dtype_for(vocab_size), num_tokens, num_documents, vocab_size, end_of_text_id, "t" * 64, "p" * 64, "o" * 64
    )
    data = header.to_bytes()
    assert len(data) == HEADER_BYTES
    assert TokenFileHeader.from_bytes(data, PATH) == header


def test_empty_file_is_named():
    """An empty file is called empty."""
    with pytest.raises(TokenFileError, match="empty"):
        TokenFileHeader.from_bytes(b"", PATH)


@pytest.mark.parametrize("length", [1, 7, 8, 100, HEADER_BYTES - 1])
def test_truncated_header_says_how_much_is_missing(length):
    """A file that ends within the header says how many bytes are missing."""
    missing = f"{HEADER_BYTES - length:,} of 4,096 bytes missing"
    with pytest.raises(TokenFileError, match=missing):
        TokenFileHeader.from_bytes(HEADER.to_bytes()[:length], PATH)


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"\x93NUMPY\x01\x00", "NumPy"),
        (b"MMIDIDX\x00\x00", "Megatron"),
        (struct.pack("<ii", 20240520, 1), "modded-nanogpt"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"PK\x03\x04", "zip"),
        (b"To be, or not to be", "text file"),
        (b"\x05\x00\x07\x00\xff\xff", "headerless"),
    ],
)
def test_foreign_files_are_called_by_name(head, name):
    """A file of another format is refused under its own name."""
    with pytest.raises(TokenFileError, match=name):
        TokenFileHeader.from_bytes(head, PATH)


@given(st.integers(8, HEADER_BYTES - 1), st.integers(1, 255))
def test_a_flipped_byte_is_noticed_or_padding(position, flip):
    """Any changed byte of the header is noticed, unless it is the padding behind the JSON."""
    data = bytearray(HEADER.to_bytes())
    data[position] ^= flip
    if position >= 20 + struct.unpack_from("<I", HEADER.to_bytes(), 12)[0]:
        assert TokenFileHeader.from_bytes(bytes(data), PATH) == HEADER
    else:
        with pytest.raises(TokenFileError, match=r"damaged|version"):
            TokenFileHeader.from_bytes(bytes(data), PATH)


def packed(row):
    text = json.dumps(row).encode()
    return (MAGIC + struct.pack("<III", 1, len(text), zlib.crc32(text)) + text).ljust(HEADER_BYTES, b"\0")


@pytest.mark.parametrize(
    "row",
    [
        [],
        {},
        asdict(HEADER) | {"vocab_size": "many"},
        asdict(replace(HEADER, dtype="uint32")),
        asdict(replace(HEADER, num_tokens=-1)),
        asdict(replace(HEADER, vocab_size=70_000)),
    ],
)
def test_senseless_headers_are_refused(row):
    """A header with a good checksum and impossible content is refused as such."""
    with pytest.raises(TokenFileError, match="makes no sense"):
        TokenFileHeader.from_bytes(packed(row), PATH)


def test_newer_version_is_named():
    """A file of a later version says which it is and which can be read."""
    data = bytearray(HEADER.to_bytes())
    struct.pack_into("<I", data, 8, 2)
    with pytest.raises(TokenFileError, match="version 2; this torchledger reads version 1"):
        TokenFileHeader.from_bytes(bytes(data), PATH)
