"""Token files of other projects, recognised by what they begin with: NumPy, llm.c, Megatron, or ids and nothing else.

::

    headerless   ids alone: nanoGPT's .bin, OLMo's .npy (which has no NumPy header). Their type must be told
    npy          a NumPy header, which says type and count (numpy.lib.format)
    llm.c        256 int32 (magic, version, count), then uint16 (GPT-2; modded-nanogpt too) or uint32 ids (Llama 3)
    megatron     ids in a .bin, their type, sequences and documents in the .idx beside it (see `megatron`)
"""

import io
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import numpy as np

from torchledger.trainer.megatron import read_index
from torchledger.trainer.tokenheader import TokenDtype, TokenFileError, TokenFileHeader, foreign_name, itemsize_of

__all__ = ["Asked", "Foreign", "Layout", "recognise"]

Layout = Literal["torchledger", "headerless", "npy", "llm.c", "megatron"]

_LLM_C = struct.Struct("<3i")  # magic, version, number of tokens; then zeros up to 256 int32
_LLM_C_BYTES = 1024
# magic: version, type, vocabulary, the id that begins each document (llm.c, dev/data/data_common.py and fineweb.py)
_LLM_C_KINDS: dict[int, tuple[int, TokenDtype, int, int]] = {
    20240520: (1, "uint16", 50_257, 50_256),
    20240801: (7, "uint32", 128_256, 128_000),
}
_NPY_MAGIC = b"\x93NUMPY"
# No row of token ids, whatever type is told: reading them as ids would train on noise in silence.
_NEVER_IDS = (b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"PAR1", b"PK\x03\x04", b"MMIDIDX\x00")
_TEXT_BYTES = 64  # so many bytes of ASCII without a zero are text, not 16-bit ids


@dataclass(frozen=True, slots=True)
class Asked:
    """What the reader says of a file that cannot say it itself; what is None is not said."""

    dtype: str | None = None
    vocab_size: int | None = None
    end_of_text_id: int | None = None


@dataclass(frozen=True, slots=True)
class Foreign:
    """Where the ids stand in a file, and all that is known of them. `marks_begin`: the mark begins its document."""

    path: Path
    header: TokenFileHeader
    payload_start: int
    layout: Layout
    marks_begin: bool = False


def recognise(path: Path, head: bytes, size: int, asked: Asked) -> Foreign:
    """Describe the file at `path`, of `size` bytes, that begins with `head` and is none of ours.

    Raises:
        TokenFileError: of no format known here, cut short, too long, of another type than was told, or headerless
            without a type being told.
    """
    index = path.with_suffix(".idx")
    if head.startswith(b"MMIDIDX\x00") or (path.suffix == ".bin" and index.is_file()):
        return _megatron(path.with_suffix(".bin"), index if index.is_file() else path, asked)
    if head.startswith(_NPY_MAGIC):
        return _npy(path, head, size, asked)
    if len(head) >= _LLM_C.size and _LLM_C.unpack_from(head)[0] in _LLM_C_KINDS:
        return _llm_c(path, head, size, asked)
    return _headerless(path, head, size, asked)


def _header(
    path: Path, dtype: str, num_tokens: int, asked: Asked, *, num_documents: int | None = None
) -> TokenFileHeader:
    if asked.dtype is not None and asked.dtype != dtype:
        raise TokenFileError(f"{path} says itself that its ids are {dtype}, not {asked.dtype}; leave the type out")
    limits = np.iinfo(np.dtype(dtype))
    most = min(int(limits.max) + 1, 2**32)
    if asked.vocab_size is not None and asked.vocab_size < 1:
        raise TokenFileError(f"a vocabulary of {asked.vocab_size} has no token")
    vocab_size = most if asked.vocab_size is None else min(asked.vocab_size, most)
    mark = asked.end_of_text_id
    if mark is not None and not 0 <= mark < vocab_size:
        raise TokenFileError(f"end-of-text id {mark:,} is outside the vocabulary of {vocab_size:,}")
    return TokenFileHeader(cast("TokenDtype", dtype), num_tokens, num_documents, vocab_size, mark, None, None, None)


def _sized(path: Path, expected: int, size: int) -> None:
    if size < expected:
        raise TokenFileError(f"{path} is truncated: {expected - size:,} of {expected:,} bytes are missing")
    if size > expected:
        raise TokenFileError(f"{path} is too long: {size - expected:,} bytes follow its end")


def _headerless(path: Path, head: bytes, size: int, asked: Asked) -> Foreign:
    if head.startswith(_NEVER_IDS):
        raise TokenFileError(f"{path} is not a token file: it looks like {foreign_name(head)}")
    if asked.dtype is None:
        raise TokenFileError(
            f"{path} has no header known here: it looks like {foreign_name(head)}. If it is token ids and nothing "
            f"else, say their type (`--dtype`, or token_file.dtype of a run; nanoGPT and OLMo write uint16)"
        )
    itemsize = itemsize_of(asked.dtype)
    if itemsize > 1 and len(head) >= _TEXT_BYTES and head.isascii() and b"\0" not in head:
        raise TokenFileError(f"{path} is text, not {asked.dtype} ids; `torchledger prepare` turns text into tokens")
    if size % itemsize:
        raise TokenFileError(
            f"{path} has {size:,} bytes, no whole number of {asked.dtype} ids of {itemsize} bytes: it is cut short, "
            f"or of another type"
        )
    return Foreign(path, _header(path, asked.dtype, size // itemsize, asked), 0, "headerless")


def _npy(path: Path, head: bytes, size: int, asked: Asked) -> Foreign:
    stream = io.BytesIO(head)
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream)
    except ValueError as error:
        raise TokenFileError(f"{path} has a damaged NumPy header: {error}") from error
    if dtype.kind not in "iu" or (dtype.itemsize > 1 and dtype.newbyteorder("<") != dtype):
        raise TokenFileError(f"{path} is a NumPy array of {dtype}; token ids are little-endian integers")
    if fortran and len(shape) > 1:
        raise TokenFileError(f"{path} is a NumPy array in Fortran order, whose rows do not follow each other")
    count = int(np.prod(shape, dtype=object)) if shape else 1
    start = stream.tell()
    _sized(path, start + count * dtype.itemsize, size)
    return Foreign(path, _header(path, dtype.newbyteorder("=").name, count, asked), start, "npy")


def _llm_c(path: Path, head: bytes, size: int, asked: Asked) -> Foreign:
    magic, version, count = _LLM_C.unpack_from(head)
    known, dtype, vocab_size, mark = _LLM_C_KINDS[magic]
    if version != known:
        raise TokenFileError(f"{path} is an llm.c token file of version {version}; version {known} is known here")
    if count < 0:
        raise TokenFileError(f"{path} has a damaged header: {count:,} tokens")
    _sized(path, _LLM_C_BYTES + count * itemsize_of(dtype), size)
    vocab_size = vocab_size if asked.vocab_size is None else asked.vocab_size
    if asked.end_of_text_id is not None:
        mark = asked.end_of_text_id
    told = Asked(asked.dtype, vocab_size, mark if asked.end_of_text_id is not None or mark < vocab_size else None)
    return Foreign(path, _header(path, dtype, count, told), _LLM_C_BYTES, "llm.c", marks_begin=True)


def _megatron(path: Path, index_path: Path, asked: Asked) -> Foreign:
    index = read_index(index_path)
    try:
        size = path.stat().st_size
    except OSError as error:
        raise TokenFileError(f"cannot read {path}, which {index_path.name} belongs to: {error.strerror}") from error
    _sized(path, index.num_tokens * itemsize_of(index.dtype), size)
    header = _header(path, index.dtype, index.num_tokens, asked, num_documents=len(index.offsets) - 1)
    return Foreign(path, header, 0, "megatron")
