"""Token files, written: streamed in bounded memory, every id checked, and in place only when whole."""

import contextlib
import hashlib
import os
import sys
from array import array
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np
from jaxtyping import Int

from torchledger.trainer.durable import partial_path, publish
from torchledger.trainer.locks import Taken, take
from torchledger.trainer.tokenheader import HEADER_BYTES, TokenFileError, TokenFileHeader, dtype_for

__all__ = ["TokenFileWriter"]

KEPT_TOKENS = 1 << 20  # read at a time


class TokenFileWriter:
    """Writes one token file: `write` ids, `end_document` after each document, leave the `with` block.

    The file grows under a hidden name in the same folder and gets its own name, after a sync to disk, when the block
    ends well. An exception or a kill leaves whatever was at `path` untouched; a left-over partial file is reused by the
    next writer, and a second writer at the same time is refused.

    Memory: 8 bytes a document (the offsets), and one write at a time.

    Args:
        path: where the finished file shall stand; its folder must exist.
        vocab_size: ids must be below it; chooses the dtype.
        end_of_text_id: appended by `end_document`; `None` appends nothing.
        tokenizer_hash: `Tokenizer.hash`, so that a model is never fed another tokenizer's ids.
        keep_tokens: go on with the partial file of a writer that was killed, after its first so many ids, which `sync`
            had put on disk. They are read again for their checksum, and for the end-of-text ids, which no document has
            in its midst.

    Raises:
        TokenFileError: if the folder cannot be written to, another process is writing the same file, or it does not
            have the ids to keep.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        vocab_size: int,
        end_of_text_id: int | None,
        tokenizer_hash: str,
        keep_tokens: int = 0,
    ) -> None:
        self.path = Path(path)
        self.num_tokens = 0
        self._dtype_name = dtype_for(vocab_size)
        self._dtype = np.dtype(self._dtype_name).newbyteorder("<")
        self._vocab_size = vocab_size
        self._tokenizer_hash = tokenizer_hash
        self._end_of_text_id = end_of_text_id
        self._end_of_text = [] if end_of_text_id is None else [end_of_text_id]
        self._offsets = array("Q", [0])
        self._digest = hashlib.sha256()
        self._partial = partial_path(self.path)
        if end_of_text_id is not None and not 0 <= end_of_text_id < vocab_size:
            raise TokenFileError(f"end-of-text id {end_of_text_id} is outside the vocabulary of {vocab_size:,}")
        try:
            self._stream = _open_alone(self._partial, keep_bytes=HEADER_BYTES + keep_tokens * self._dtype.itemsize)
            self._stream.write(bytes(HEADER_BYTES))
            self._keep(keep_tokens)
        except OSError as error:
            raise TokenFileError(f"cannot write {self.path}: {error.strerror}") from error

    @property
    def num_documents(self) -> int:
        """Documents ended so far."""
        return len(self._offsets) - 1

    def write(self, ids: Sequence[int] | Int[np.ndarray, " tokens"]) -> None:
        """Append token ids to the document at hand.

        Raises:
            TokenFileError: an id outside the vocabulary (with its position), ids that are not integers, a full disk.
        """
        values = np.asarray(ids) if len(ids) else np.empty(0, np.int64)
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise TokenFileError(f"token ids must be a flat row of whole numbers, got {values.dtype} {values.shape}")
        self._check(values)
        data = values.astype(self._dtype).tobytes()
        self._digest.update(data)
        self._append(data)
        self.num_tokens += len(values)

    def end_document(self) -> None:
        """End the document at hand with the end-of-text id; a document without any token is not counted.

        Raises:
            TokenFileError: on a full disk.
        """
        if self.num_tokens == self._offsets[-1]:
            return
        self.write(self._end_of_text)
        self._offsets.append(self.num_tokens)

    def sync(self) -> None:
        """Put what is written so far on disk, so that a later writer can keep it.

        Raises:
            TokenFileError: on a full disk.
        """
        try:
            self._stream.flush()
            os.fsync(self._stream.fileno())
        except OSError as error:
            self.abort()
            raise TokenFileError(f"cannot write {self.path}: {error.strerror}") from error

    def leave(self) -> None:
        """Close the partial file and let it be, for a later writer to go on with."""
        if not self._stream.closed:
            with contextlib.suppress(OSError):
                self._stream.close()

    def commit(self) -> TokenFileHeader:
        """Finish the file and give it its name; ids after the last `end_document` become a document of their own.

        Raises:
            TokenFileError: on a full disk or a folder that has become read-only; nothing is left behind.
        """
        self.end_document()
        if sys.byteorder == "big":
            self._offsets.byteswap()
        offsets = self._offsets.tobytes()
        header = TokenFileHeader(
            dtype=self._dtype_name,
            num_tokens=self.num_tokens,
            num_documents=self.num_documents,
            vocab_size=self._vocab_size,
            end_of_text_id=self._end_of_text_id,
            tokenizer_hash=self._tokenizer_hash,
            payload_sha256=self._digest.hexdigest(),
            offsets_sha256=hashlib.sha256(offsets).hexdigest(),
        )
        try:
            self._stream.write(bytes(header.offsets_start - HEADER_BYTES - header.payload_bytes) + offsets)
            self._stream.seek(0)
            self._stream.write(header.to_bytes())
            self._stream.flush()
            os.fsync(self._stream.fileno())
            publish(self._partial, self.path)
        except OSError as error:
            self.abort()
            raise TokenFileError(f"cannot finish {self.path}: {error.strerror}") from error
        self._stream.close()
        return header

    def abort(self) -> None:
        """Throw away what was written; whatever stood at `path` before stays."""
        if not self._stream.closed:
            with contextlib.suppress(OSError):  # closing flushes, which a full disk refuses
                self._partial.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._stream.closed:
            self.commit()
        self.abort()

    def _keep(self, num_tokens: int) -> None:
        """Take the first `num_tokens` ids of the partial file for written: checksum and documents are theirs."""
        while self.num_tokens < num_tokens:
            data = self._stream.read(min(num_tokens - self.num_tokens, KEPT_TOKENS) * self._dtype.itemsize)
            ids = np.frombuffer(data, self._dtype, len(data) // self._dtype.itemsize)
            if len(ids) == 0:
                self._stream.close()
                raise TokenFileError(f"{self._partial} has not the {num_tokens:,} ids that were written to it")
            self._digest.update(ids.data)
            if self._end_of_text_id is not None:
                ends = np.flatnonzero(ids == self._end_of_text_id) + self.num_tokens + 1
                self._offsets.extend(ends.tolist())
            self.num_tokens += len(ids)

    def _append(self, data: bytes) -> None:
        try:
            self._stream.write(data)
        except OSError as error:
            self.abort()
            raise TokenFileError(f"cannot write {self.path}: {error.strerror}") from error

    def _check(self, ids: Int[np.ndarray, " tokens"]) -> None:
        if len(ids) == 0 or (int(ids.min()) >= 0 and int(ids.max()) < self._vocab_size):
            return
        first = int(np.argmax((ids < 0) | (ids >= self._vocab_size)))
        raise TokenFileError(
            f"token id {int(ids[first]):,} at position {self.num_tokens + first:,} (document {self.num_documents:,}) "
            f"is outside the vocabulary of {self._vocab_size:,}; {self.path} was not written"
        )


def _open_alone(partial: Path, *, keep_bytes: int) -> BinaryIO:
    """Open the partial file for this process alone, cut to `keep_bytes`; a dead writer's lock is gone with it.

    The lock is the system's (`flock`), so a killed writer leaves none. Between opening and locking, another writer may
    have finished and renamed the file we hold; then it is not ours to empty, and we try again.
    """
    while True:
        stream = os.fdopen(os.open(partial, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666), "r+b")
        try:
            take(stream.fileno())
            with contextlib.suppress(FileNotFoundError):
                if os.fstat(stream.fileno()).st_ino == partial.stat().st_ino:
                    stream.truncate(min(keep_bytes, partial.stat().st_size))
                    return stream
        except Taken:
            stream.close()
            raise TokenFileError(f"another process is writing {partial} right now; wait for it, or end it") from None
        except BaseException:
            stream.close()
            raise
        stream.close()
