"""The first 4,096 bytes of a token file: what is in it, how much of it, and the checksums that prove it."""

import json
import struct
import zlib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal, Self

__all__ = [
    "HEADER_BYTES",
    "MAGIC",
    "VERSION",
    "TokenDtype",
    "TokenFileError",
    "TokenFileHeader",
    "dtype_for",
    "foreign_name",
    "itemsize_of",
]

MAGIC = b"TLTOKENS"
VERSION = 1
HEADER_BYTES = 4096  # one page, so that the token ids behind it start on a page
OFFSET_BYTES = 8  # document offsets are uint64

_STRINGS = ("tokenizer_hash", "payload_sha256", "offsets_sha256")
_PREFIX = struct.Struct("<8sIII")  # magic, version, length of the JSON text, CRC-32 of the JSON text
_OWN = ("uint16", "uint32")  # what our own files are made of; the rest is read, never written
_NUM_BYTES = {"uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8}

# What other files begin with, so that a mistaken one is called by its name instead of "wrong magic".
_FOREIGN = (
    (b"\x93NUMPY", "a NumPy .npy file"),
    (b"MMIDIDX\x00", "a Megatron .idx file"),
    (struct.pack("<i", 20240520), "a modded-nanogpt/llm.c GPT-2 token file"),
    (struct.pack("<i", 20240801), "an llm.c Llama-3 token file"),
    (b"\x1f\x8b", "a gzip file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"PAR1", "a Parquet file"),
    (b"PK\x03\x04", "a zip file (PyTorch checkpoints are zip files too)"),
)

TokenDtype = Literal["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]


class TokenFileError(ValueError):
    """A token file that cannot be read or written, or token ids that do not belong in it; the message says which."""


def dtype_for(vocab_size: int) -> TokenDtype:
    """The narrowest integer that holds every id of a vocabulary: uint16 as long as the largest id is at most 65,535.

    >>> dtype_for(65_536), dtype_for(65_537)
    ('uint16', 'uint32')

    Raises:
        TokenFileError: if `vocab_size` is not between 1 and 2**32.
    """
    if not 1 <= vocab_size <= 2**32:
        raise TokenFileError(f"a vocabulary of {vocab_size} does not fit in 32-bit token ids (1 to 2**32)")
    return "uint16" if vocab_size <= 2**16 else "uint32"


def itemsize_of(dtype: str) -> int:
    """Bytes of one id of a type.

    Raises:
        TokenFileError: not one of the eight integer types.
    """
    if dtype not in _NUM_BYTES:
        raise TokenFileError(f"no token ids are made of {dtype!r}; the types are {', '.join(_NUM_BYTES)}")
    return _NUM_BYTES[dtype]


@dataclass(frozen=True, slots=True)
class TokenFileHeader:
    """What a token file says of itself.

    In a file of our own everything is said but, where there is none, the end-of-text id. In one of another project's
    (see `foreign`) what is not said is None, and `vocab_size` is then how many ids its type can hold.

    Layout of the file: `HEADER_BYTES` of header (magic, version, JSON, zeros), `num_tokens` little-endian ids of
    `dtype`, zeros up to a multiple of 8, then `num_documents + 1` little-endian uint64 offsets: where each document
    starts, and at last `num_tokens`. A document's end-of-text id belongs to it.
    """

    dtype: TokenDtype
    num_tokens: int
    num_documents: int | None
    vocab_size: int
    end_of_text_id: int | None
    tokenizer_hash: str | None
    payload_sha256: str | None
    offsets_sha256: str | None

    @property
    def itemsize(self) -> int:
        """Bytes of one token id."""
        return _NUM_BYTES[self.dtype]

    @property
    def payload_bytes(self) -> int:
        """Bytes of all token ids."""
        return self.num_tokens * self.itemsize

    @property
    def offsets_start(self) -> int:
        """Where in the file the document offsets begin, in bytes."""
        return HEADER_BYTES + -(-self.payload_bytes // OFFSET_BYTES) * OFFSET_BYTES

    @property
    def file_bytes(self) -> int:
        """Bytes of the whole file, which is one of our own."""
        assert self.num_documents is not None
        return self.offsets_start + (self.num_documents + 1) * OFFSET_BYTES

    def to_bytes(self) -> bytes:
        """The header as it stands in the file, `HEADER_BYTES` long."""
        text = json.dumps(asdict(self), sort_keys=True).encode()
        assert len(text) <= HEADER_BYTES - _PREFIX.size
        return (_PREFIX.pack(MAGIC, VERSION, len(text), zlib.crc32(text)) + text).ljust(HEADER_BYTES, b"\0")

    @classmethod
    def from_bytes(cls, head: bytes, path: Path) -> Self:
        """Read the header from a file's first bytes; `path` is for the messages.

        Raises:
            TokenFileError: if they are not a token file's, are too few, damaged, or of a version unknown here.
        """
        if not head:
            raise TokenFileError(f"{path} is empty (0 bytes), not a token file")
        if head[: len(MAGIC)] != MAGIC[: len(head)]:
            raise TokenFileError(f"{path} is not a torchledger token file: it looks like {foreign_name(head)}")
        if len(head) < HEADER_BYTES:
            missing = HEADER_BYTES - len(head)
            raise TokenFileError(
                f"{path} is truncated within its header: {missing:,} of {HEADER_BYTES:,} bytes missing"
            )
        _, version, length, crc = _PREFIX.unpack_from(head)
        if version != VERSION:
            raise TokenFileError(f"{path} has token file version {version}; this torchledger reads version {VERSION}")
        text = head[_PREFIX.size : _PREFIX.size + length]
        if len(text) != length or zlib.crc32(text) != crc:
            raise TokenFileError(f"{path} has a damaged header (its checksum does not match); prepare it again")
        return cls._from_json(text, path)

    @classmethod
    def _from_json(cls, text: bytes, path: Path) -> Self:
        try:
            row = json.loads(text)
            header = cls(**{field.name: row[field.name] for field in fields(cls)})
            sound = header.dtype in _OWN and dtype_for(header.vocab_size) == header.dtype
            sound = sound and min(header.num_tokens, row["num_documents"]) >= 0
            sound = sound and all(isinstance(row[name], str) for name in _STRINGS)
        except (ValueError, KeyError, TypeError) as error:
            raise TokenFileError(f"{path} has a header that makes no sense ({error!r}); prepare it again") from error
        if not sound:
            raise TokenFileError(f"{path} has a header that makes no sense ({text.decode()}); prepare it again")
        return header


def foreign_name(head: bytes) -> str:
    """What a file that is none of ours looks like, from its first bytes."""
    for magic, name in _FOREIGN:
        if head.startswith(magic):
            return name
    if head.isascii() and b"\0" not in head:
        return "a text file (`torchledger prepare` turns text into token files)"
    return f"headerless or foreign data, beginning with {head[:8].hex(' ')}"
