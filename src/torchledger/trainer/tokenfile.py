"""Token files, read: opened with their size checked, read in place, verified to the last id when asked."""

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from jaxtyping import Int, UInt64

from torchledger.trainer.tokenheader import HEADER_BYTES, TokenFileError, TokenFileHeader

__all__ = ["TokenFile", "TokenFileError", "TokenFileHeader"]

CHUNK_TOKENS = 1 << 20  # tokens held at a time when a whole file is walked


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A token file that exists, is one, and has the size its header promises. Holds no open file.

    `payload_start` is the byte at which the ids begin; `dtype` is NumPy's name of their little-endian type.
    """

    path: Path
    header: TokenFileHeader
    payload_start: int = HEADER_BYTES

    @classmethod
    def open(cls, path: Path | str, *, verify: bool = False) -> Self:
        """Read the header of the token file at `path` and check the file's size against it.

        Args:
            path: the file.
            verify: also read every byte (see `verify`).

        Raises:
            TokenFileError: missing, a folder, empty, foreign, truncated, damaged: the message says which.
        """
        path = Path(path)
        try:
            with path.open("rb") as stream:
                head = stream.read(HEADER_BYTES)
                size = os.fstat(stream.fileno()).st_size
        except FileNotFoundError:
            raise TokenFileError(f"no token file at {path}; `torchledger prepare` writes one") from None
        except IsADirectoryError:
            inside = sorted(entry.name for entry in path.glob("*.tokens"))
            hint = f"; the token files in it: {', '.join(inside)}" if inside else ""
            raise TokenFileError(f"{path} is a folder, not a token file{hint}") from None
        except OSError as error:
            raise TokenFileError(f"cannot read {path}: {error.strerror}") from error
        header = TokenFileHeader.from_bytes(head, path)
        if size != header.file_bytes:
            difference, fault = header.file_bytes - size, "truncated"
            words = f"{difference:,} of {header.file_bytes:,} bytes are missing"
            if difference < 0:
                fault, words = "too long", f"{-difference:,} bytes follow its end"
            raise TokenFileError(f"{path} is {fault}: {words}")
        token_file = cls(path, header)
        if verify:
            token_file.verify()
        return token_file

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        """NumPy type of the ids as they stand in the file: little-endian, whatever this machine is."""
        return np.dtype(self.header.dtype).newbyteorder("<")

    @property
    def num_tokens(self) -> int:
        """Token ids in the file, end-of-text ids counted."""
        return self.header.num_tokens

    @property
    def vocab_size(self) -> int:
        """One more than the largest id that may occur."""
        return self.header.vocab_size

    def chunks(self, size: int = CHUNK_TOKENS) -> Iterator[Int[np.ndarray, " tokens"]]:
        """All ids in order, `size` at a time (the last chunk may be shorter), in bounded memory.

        Raises:
            TokenFileError: if the file has become shorter since it was opened.
        """
        with self.path.open("rb") as stream:
            stream.seek(self.payload_start)
            for start in range(0, self.num_tokens, size):
                yield self._read(stream.read, min(size, self.num_tokens - start), self.dtype)

    def read(self, start: int, count: int) -> Int[np.ndarray, " count"]:
        """The ids at positions `start` to `start + count`.

        Raises:
            TokenFileError: if they are not all in the file.
        """
        if start < 0 or count < 0 or start + count > self.num_tokens:
            raise TokenFileError(
                f"{self.path} has {self.num_tokens:,} tokens; asked for {start:,} to {start + count:,}"
            )
        with self.path.open("rb") as stream:
            stream.seek(self.payload_start + start * self.header.itemsize)
            return self._read(stream.read, count, self.dtype)

    def document_offsets(self) -> UInt64[np.ndarray, " documents_plus_1"]:
        """Where each document starts, and at last the number of tokens: document i is offsets[i] to offsets[i + 1]."""
        with self.path.open("rb") as stream:
            stream.seek(self.header.offsets_start)
            return self._read(stream.read, self.header.num_documents + 1, np.dtype("<u8"))

    def verify(self) -> None:
        """Read the whole file and prove it: every id below the vocabulary size, offsets in order, both checksums.

        Raises:
            TokenFileError: naming the first fault, with its position.
        """
        digest, position = hashlib.sha256(), 0
        for chunk in self.chunks():
            self.check_range(chunk, position)
            digest.update(chunk.data)
            position += len(chunk)
        if digest.hexdigest() != self.header.payload_sha256:
            raise TokenFileError(f"{self.path} is damaged: the checksum of its token ids does not match its header")
        offsets = self.document_offsets()
        steps = offsets[1:] > offsets[:-1]
        if offsets[0] != 0 or offsets[-1] != self.num_tokens or not steps.all():
            where = f" at document {int(np.argmin(steps)):,}" if not steps.all() else ""
            raise TokenFileError(f"{self.path} is damaged: its document offsets are not in order{where}")
        if hashlib.sha256(offsets.data).hexdigest() != self.header.offsets_sha256:
            raise TokenFileError(f"{self.path} is damaged: the checksum of its document offsets does not match")

    def check_range(self, ids: Int[np.ndarray, " tokens"], position: int) -> None:
        """Refuse an id beyond the vocabulary before a device sees it; `position` is that of the first of `ids`.

        Raises:
            TokenFileError: with the id, its position and the vocabulary size.
        """
        if self.vocab_size <= np.iinfo(ids.dtype).max and len(ids) and int(ids.max()) >= self.vocab_size:
            first = int(np.argmax(ids >= self.vocab_size))
            raise TokenFileError(
                f"{self.path} has token id {int(ids[first]):,} at position {position + first:,}, "
                f"beyond its vocabulary of {self.vocab_size:,}"
            )

    def _read(
        self, read: Callable[[int], bytes], count: int, dtype: np.dtype[np.unsignedinteger[Any]]
    ) -> Int[np.ndarray, " count"]:
        raw = read(count * dtype.itemsize)
        if len(raw) != count * dtype.itemsize:
            missing = count * dtype.itemsize - len(raw)
            raise TokenFileError(f"{self.path} has become shorter since it was opened: {missing:,} bytes missing")
        return np.frombuffer(raw, dtype)
