"""The index of a Megatron-LM data set: the type of the ids in its .bin, and where each document begins.

Layout (Megatron-LM, core/datasets/indexed_dataset.py): 9 bytes of magic, version as uint64, type code as uint8, number
of sequences S and of document bounds as uint64, then S int32 lengths, S int64 places in bytes, and the bounds as int64:
document d is sequences bounds[d] to bounds[d + 1]. Data of several modes has S int8 more, which do not matter here.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt64

from torchledger.trainer.tokenheader import TokenDtype, TokenFileError, itemsize_of

__all__ = ["MegatronIndex", "read_index"]

_MAGIC = b"MMIDIDX\x00\x00"
_PREFIX = struct.Struct("<9sQBQQ")
_DTYPES: dict[int, TokenDtype] = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}


@dataclass(frozen=True, slots=True)
class MegatronIndex:
    """What the .idx says: `offsets` is where each document starts, in tokens, and at last their number."""

    dtype: TokenDtype
    num_tokens: int
    offsets: UInt64[np.ndarray, " documents_plus_1"]


def read_index(path: Path) -> MegatronIndex:
    """Read a .idx file whole (12 bytes a sequence, 8 a document) and check that its parts agree.

    Raises:
        TokenFileError: not one, cut short, of an unknown version or type, or with sequences that do not follow each
            other without a gap.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TokenFileError(f"cannot read {path}: {error.strerror}") from error
    if not data.startswith(_MAGIC):
        raise TokenFileError(f"{path} is not the index of a Megatron data set: it begins with {data[:9]!r}")
    if len(data) < _PREFIX.size:
        raise TokenFileError(f"{path} is truncated within its header: {_PREFIX.size - len(data)} bytes missing")
    _, version, code, num_sequences, num_bounds = _PREFIX.unpack_from(data)
    if version != 1:
        raise TokenFileError(f"{path} is a Megatron index of version {version}; version 1 is known here")
    if code not in _DTYPES:
        raise TokenFileError(f"{path} says type code {code}, which is no integer type of Megatron's")
    sizes = (num_sequences * 4, num_sequences * 8, num_bounds * 8)
    extra = len(data) - _PREFIX.size - sum(sizes)
    if extra not in {0, num_sequences}:
        fault = f"truncated: {-extra:,} bytes are missing" if extra < 0 else f"too long: {extra:,} bytes follow its end"
        raise TokenFileError(f"{path} is {fault}")
    lengths = _row(data, _PREFIX.size, num_sequences, "<i4").astype(np.int64)
    places = _row(data, _PREFIX.size + sizes[0], num_sequences, "<i8")
    bounds = _row(data, _PREFIX.size + sizes[0] + sizes[1], num_bounds, "<i8")
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    if num_sequences and (lengths.min() < 0 or (places != ends[:-1] * itemsize_of(_DTYPES[code])).any()):
        wrong = int(np.argmax((lengths < 0) | (places != ends[:-1] * itemsize_of(_DTYPES[code]))))
        raise TokenFileError(f"{path} is damaged: sequence {wrong:,} does not begin where the one before it ends")
    if not num_bounds or bounds[0] != 0 or bounds[-1] != num_sequences or (bounds[1:] < bounds[:-1]).any():
        raise TokenFileError(f"{path} is damaged: its document bounds are no way from 0 to {num_sequences:,} sequences")
    offsets = np.unique(ends[bounds]).astype(np.uint64)  # a document without tokens is none
    return MegatronIndex(_DTYPES[code], int(ends[-1]), offsets)


def _row(data: bytes, start: int, count: int, dtype: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.frombuffer(data, dtype, count, start)
