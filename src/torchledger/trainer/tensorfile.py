"""A safetensors file, written and read by hand: a JSON header, then the tensors' bytes one after the other.

    8 bytes   length n of the header, little endian
    n bytes   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}, padded with spaces
    the rest  the data, the widest formats first, so that every tensor is aligned

(https://github.com/huggingface/safetensors, "Format".) The library's own writer makes a copy of every tensor and tells
no checksum; this one sums while it writes, holds the interpreter's lock in neither, and names the system's error.
Reading runs no code: whatever a file says, it says in JSON and raw numbers.
"""

import json
import math
import mmap
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from torchledger.trainer.errors import CheckpointError

__all__ = ["Shape", "TensorFile", "format_name", "write_one_by_one", "write_tensors"]

_CHUNK = 1 << 20  # bytes summed and written at a time: what was summed is still in the cache when it is written
_LONGEST_HEADER = 1 << 30
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


def format_name(dtype: torch.dtype) -> str:
    """A format's name in a manifest: `float32`."""
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True, slots=True)
class Shape:
    """What a header says of a tensor before its bytes are there.

    Attributes:
        sizes: of its dimensions.
        dtype: its format.
    """

    sizes: tuple[int, ...]
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        """Of its data."""
        return math.prod(self.sizes) * self.dtype.itemsize


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> dict[str, int]:
    """Write a file of tensors and sync it to disk.

    Args:
        path: where; an older file is overwritten.
        tensors: by name, on any device; each is copied to the CPU only while it is written.
        metadata: words for the header.

    Returns:
        The CRC-32 of each tensor's bytes.

    Raises:
        OSError: a full disk, a folder that cannot be written to; the file is then half.
    """
    shapes = {name: Shape(tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}
    return write_one_by_one(path, shapes, tensors.__getitem__, metadata)


def write_one_by_one(
    path: Path, shapes: Mapping[str, Shape], make: Callable[[str], Tensor], metadata: Mapping[str, str] | None = None
) -> dict[str, int]:
    """As `write_tensors`, with one tensor at a time in memory: `make` gives the one of a name when its turn comes.

    Raises:
        OSError: as `write_tensors`.
    """
    names = sorted(shapes, key=lambda name: (-shapes[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt", **(metadata or {})}}
    begin = 0
    for name in names:
        shape = shapes[name]
        place = [begin, begin + shape.num_bytes]
        header[name] = {"dtype": _CODES[shape.dtype], "shape": list(shape.sizes), "data_offsets": place}
        begin = place[1]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    sums = {}
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            data, crc = _bytes_of(make(name)), 0
            assert len(data) == shapes[name].num_bytes, name
            for start in range(0, len(data), _CHUNK):
                chunk = data[start : start + _CHUNK]
                crc = zlib.crc32(chunk, crc)
                stream.write(chunk)
            sums[name] = crc
        stream.flush()
        os.fsync(stream.fileno())
    return sums


@dataclass(frozen=True, slots=True)
class TensorFile:
    """A file that can be read tensor by tensor. Make one with `open`.

    Attributes:
        path: where it is.
        begin: position of the first tensor's first byte.
        entries: name -> its row of the header.
        metadata: words of the header.
    """

    path: Path
    begin: int
    entries: Mapping[str, Mapping[str, Any]]
    metadata: Mapping[str, str]

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the header.

        Raises:
            CheckpointError: missing, or no safetensors file.
        """
        try:
            with path.open("rb") as stream:
                length = int.from_bytes(stream.read(8), "little")
                fits = 2 <= length <= min(_LONGEST_HEADER, path.stat().st_size - 8)
                header = json.loads(stream.read(length) if fits else "")
            metadata = header.pop("__metadata__", {})
            return cls(path, 8 + length, header, metadata)
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, AttributeError, TypeError) as error:
            raise CheckpointError(f"{path} is damaged, or no safetensors file: {error}") from error

    def read(self, name: str, crc32: int | None = None) -> Tensor:
        """One tensor, on the CPU: a map of the file, which is read when the tensor is used.

        Args:
            name: of the tensor.
            crc32: what its bytes must sum to; nothing checks nothing.

        Raises:
            CheckpointError: not there, cut off, or its sum is another.
        """
        try:
            entry = self.entries[name]
            dtype, shape = _DTYPES[entry["dtype"]], [int(size) for size in entry["shape"]]
            start, end = (int(place) for place in entry["data_offsets"])
            if end == start:
                return torch.empty(shape, dtype=dtype)
            raw = _mapped(self.path, self.begin + start, end - start)
            if crc32 is not None and zlib.crc32(raw.data) != crc32:
                raise CheckpointError(f"{self.path} is damaged: its checksum of {name} does not match the manifest's")
            return torch.from_numpy(raw).view(dtype).view(shape)
        except OSError as error:
            raise CheckpointError(f"cannot read {self.path}: {error.strerror or error}") from error
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(f"{self.path} is damaged: {name}: {error}") from error


def _bytes_of(tensor: Tensor) -> memoryview:
    """Its bytes in memory, row after row: no copy where it lies so on the CPU already."""
    flat = tensor.detach().to("cpu").contiguous().view(-1).view(torch.uint8)
    return flat.numpy().data


def _mapped(path: Path, start: int, num_bytes: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Bytes of a file, mapped into memory: they are read when they are used, and what is written there stays there."""
    page = start // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    with path.open("rb", buffering=0) as stream:
        length = start - page + num_bytes
        content = mmap.mmap(stream.fileno(), length, access=mmap.ACCESS_COPY, offset=page)
    return np.frombuffer(content, np.uint8, num_bytes, start - page)
