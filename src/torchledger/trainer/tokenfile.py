"""Token files, read: opened with their size checked, read in place, verified to the last id when asked."""

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from jaxtyping import Int, UInt64

from torchledger.trainer.foreign import Asked, Layout, recognise
from torchledger.trainer.megatron import read_index
from torchledger.trainer.tokenheader import HEADER_BYTES, MAGIC, TokenFileError, TokenFileHeader

__all__ = ["TokenFile", "TokenFileError", "TokenFileHeader"]

CHUNK_TOKENS = 1 << 20  # tokens held at a time when a whole file is walked


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A token file that exists, is one, and has the size its header promises. Holds no open file.

    Attributes:
        path: the file that holds the ids.
        header: what is known of it; less of other projects' files (see `foreign`) than of our own.
        payload_start: the byte at which the ids begin; those of the part, where it is one.
        layout: whose format it is.
        span: (first, number) of the ids that count, where it is a part of the file (see `part`).
        marks_begin: whether the end-of-text id begins a document instead of ending it, as llm.c writes.
    """

    path: Path
    header: TokenFileHeader
    payload_start: int = HEADER_BYTES
    layout: Layout = "torchledger"
    span: tuple[int, int] | None = None
    marks_begin: bool = False

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        verify: bool = False,
        dtype: str | None = None,
        vocab_size: int | None = None,
        end_of_text_id: int | None = None,
    ) -> Self:
        """Read the header of the token file at `path` and check the file's size against it.

        Args:
            path: the file: one of ours, or of another project's (see `foreign`).
            verify: also read every byte (see `verify`).
            dtype: type of the ids of a file without a header (`uint8` to `int64`).
            vocab_size: of a file that does not say it; ids at or beyond it are refused wherever they are read.
            end_of_text_id: of a file that does not say it; tells where its documents are.

        Raises:
            TokenFileError: missing, a folder, empty, foreign, truncated, damaged, or not what was told of it: the
                message says which.
        """
        path, asked = Path(path), Asked(dtype, vocab_size, end_of_text_id)
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
        if head and head[: len(MAGIC)] != MAGIC[: len(head)]:
            found = recognise(path, head, size, asked)
            token_file = cls(found.path, found.header, found.payload_start, found.layout, marks_begin=found.marks_begin)
        else:
            token_file = cls(path, _own_header(path, head, size, asked))
        if verify:
            token_file.verify()
        return token_file

    @staticmethod
    def is_own(path: Path) -> bool:
        """Whether the file begins as one of ours does; false of one that is not there or cannot be read."""
        try:
            with path.open("rb") as stream:
                return stream.read(len(MAGIC)) == MAGIC
        except OSError:
            return False

    def require_unchanged(self) -> None:
        """Open the file again and compare.

        Raises:
            TokenFileError: it has gone, or is another file now.
        """
        header = self.header
        told = (header.dtype, header.vocab_size, header.end_of_text_id)
        dtype, vocab_size, mark = (None, None, None) if self.layout == "torchledger" else told
        again = TokenFile.open(self.path, dtype=dtype, vocab_size=vocab_size, end_of_text_id=mark)
        if (again.header, again.layout) != (header, self.layout):
            raise TokenFileError(f"{self.path} has been replaced by another token file since it was opened")

    def part(self, start: int, count: int) -> Self:
        """The ids from `start` on, `count` of them, as a token file of their own.

        Raises:
            TokenFileError: if they are not all in the file.
        """
        self._require_inside(start, count)
        first = 0 if self.span is None else self.span[0]
        moved = self.payload_start + start * self.header.itemsize
        return replace(self, payload_start=moved, span=(first + start, count))

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        """NumPy type to read the ids as: little-endian, whatever this machine is, and without a sign.

        A negative id of a signed file thereby becomes one beyond any vocabulary that its type can hold.
        """
        return np.dtype(f"<u{self.header.itemsize}")

    @property
    def num_tokens(self) -> int:
        """Token ids in the file (or this part of it), end-of-text ids counted."""
        return self.header.num_tokens if self.span is None else self.span[1]

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
        self._require_inside(start, count)
        with self.path.open("rb") as stream:
            stream.seek(self.payload_start + start * self.header.itemsize)
            return self._read(stream.read, count, self.dtype)

    @property
    def knows_documents(self) -> bool:
        """Whether anything tells where documents end."""
        return self.layout in {"torchledger", "megatron"} or self.header.end_of_text_id is not None

    def documents(self) -> UInt64[np.ndarray, " documents_plus_1"]:
        """Where each document starts, and at last the number of tokens: document i is offsets[i] to offsets[i + 1].

        Read from the file's own list or Megatron's index (8 bytes a document); else every id is read to find the
        end-of-text ids. Of a part, the documents that its ends cut count as documents.

        Raises:
            TokenFileError: if nothing tells where documents end.
        """
        if self.layout == "torchledger":
            offsets = self.document_offsets()
        elif self.layout == "megatron":
            offsets = read_index(self.path.with_suffix(".idx")).offsets
        elif self.header.end_of_text_id is not None:
            return self._between_marks(self.header.end_of_text_id)
        else:
            raise TokenFileError(
                f"nothing tells where the documents of {self.path} end; give its end-of-text id "
                f"(`--end-of-text`, or token_file.end_of_text_id of a run)"
            )
        if self.span is None:
            return offsets
        first, count = self.span
        inside = offsets[(offsets > first) & (offsets < first + count)] - np.uint64(first)
        return _bounded(inside, count)

    def document_offsets(self) -> UInt64[np.ndarray, " documents_plus_1"]:
        """The list of offsets at the end of a file of our own, as it stands there (see `documents`)."""
        assert self.layout == "torchledger"
        assert self.header.num_documents is not None
        with self.path.open("rb") as stream:
            stream.seek(self.header.offsets_start)
            return self._read(stream.read, self.header.num_documents + 1, np.dtype("<u8"))

    def verify(self, observe: Callable[[Int[np.ndarray, " tokens"]], None] | None = None) -> str:
        """Read all ids (of a whole file of our own, every byte) and prove them.

        That is: every id below the vocabulary size, and of our own files offsets in order and both checksums. Other
        projects' files have no checksum to prove.

        Args:
            observe: given the ids, a chunk at a time, each after its ids are checked.

        Returns:
            SHA-256 of the ids as they stand in the file, in hexadecimal.

        Raises:
            TokenFileError: naming the first fault, with its position.
        """
        digest, position = hashlib.sha256(), 0
        for chunk in self.chunks():
            self.check_range(chunk, position)
            digest.update(chunk.data)
            if observe is not None:
                observe(chunk)
            position += len(chunk)
        if self.span is None and self.layout == "torchledger":
            self._verify_sums(digest.hexdigest())
        return digest.hexdigest()

    def check_range(self, ids: Int[np.ndarray, " tokens"], position: int) -> None:
        """Refuse an id beyond the vocabulary before a device sees it; `position` is that of the first of `ids`.

        Raises:
            TokenFileError: with the id, its position and the vocabulary size.
        """
        if self.vocab_size <= np.iinfo(ids.dtype).max and len(ids) and int(ids.max()) >= self.vocab_size:
            first = int(np.argmax(ids >= self.vocab_size))
            value = int(ids[first].astype(np.dtype(self.header.dtype)))
            raise TokenFileError(
                f"{self.path} has token id {value:,} at position {position + first:,}, "
                f"beyond its vocabulary of {self.vocab_size:,}{self._hint}"
            )

    @property
    def _hint(self) -> str:
        """What may be wrong with a file that could not say its type."""
        return "" if self.layout != "headerless" else f"; are its ids really {self.header.dtype}?"

    def _require_inside(self, start: int, count: int) -> None:
        if start < 0 or count < 0 or start + count > self.num_tokens:
            raise TokenFileError(
                f"{self.path} has {self.num_tokens:,} tokens; asked for {start:,} to {start + count:,}"
            )

    def _between_marks(self, mark: int) -> UInt64[np.ndarray, " documents_plus_1"]:
        found, position = [np.empty(0, np.uint64)], 0
        for chunk in self.chunks():
            places = np.flatnonzero(chunk == mark) + position + (not self.marks_begin)
            found.append(places.astype(np.uint64))
            position += len(chunk)
        inside = np.concatenate(found)
        return _bounded(inside[(inside > 0) & (inside < self.num_tokens)], self.num_tokens)

    def _verify_sums(self, payload_sha256: str) -> None:
        if payload_sha256 != self.header.payload_sha256:
            raise TokenFileError(f"{self.path} is damaged: the checksum of its token ids does not match its header")
        offsets = self.document_offsets()
        steps = offsets[1:] > offsets[:-1]
        if offsets[0] != 0 or offsets[-1] != self.num_tokens or not steps.all():
            where = f" at document {int(np.argmin(steps)):,}" if not steps.all() else ""
            raise TokenFileError(f"{self.path} is damaged: its document offsets are not in order{where}")
        if hashlib.sha256(offsets.data).hexdigest() != self.header.offsets_sha256:
            raise TokenFileError(f"{self.path} is damaged: the checksum of its document offsets does not match")

    def _read(
        self, read: Callable[[int], bytes], count: int, dtype: np.dtype[np.unsignedinteger[Any]]
    ) -> Int[np.ndarray, " count"]:
        raw = read(count * dtype.itemsize)
        if len(raw) != count * dtype.itemsize:
            missing = count * dtype.itemsize - len(raw)
            raise TokenFileError(f"{self.path} has become shorter since it was opened: {missing:,} bytes missing")
        return np.frombuffer(raw, dtype)


def _own_header(path: Path, head: bytes, size: int, asked: Asked) -> TokenFileHeader:
    header = TokenFileHeader.from_bytes(head, path)
    if size != header.file_bytes:
        difference, fault = header.file_bytes - size, "truncated"
        words = f"{difference:,} of {header.file_bytes:,} bytes are missing"
        if difference < 0:
            fault, words = "too long", f"{-difference:,} bytes follow its end"
        raise TokenFileError(f"{path} is {fault}: {words}")
    said = Asked(header.dtype, header.vocab_size, header.end_of_text_id)
    for name in ("dtype", "vocab_size", "end_of_text_id"):
        told = getattr(asked, name)
        if told is not None and told != getattr(said, name):
            raise TokenFileError(
                f"{path} says itself that its {name} is {getattr(said, name)}, not {told}; leave it out"
            )
    return header


def _bounded(inside: UInt64[np.ndarray, " bounds"], num_tokens: int) -> UInt64[np.ndarray, " documents_plus_1"]:
    ends = [0] if num_tokens == 0 else [0, num_tokens]
    return np.concatenate([np.array(ends[:1], np.uint64), inside, np.array(ends[1:], np.uint64)])
