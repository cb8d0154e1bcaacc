"""Windows of a token file read into one reused buffer, so that resident memory does not grow with the file."""

import mmap
import os
import time
import weakref
from collections.abc import Sequence
from itertools import repeat

import numpy as np
from jaxtyping import Int

from torchledger.trainer.tokenfile import TokenFile, TokenFileError

__all__ = ["WindowReader"]

HAS_PREADV = hasattr(os, "preadv")
HAS_ADVICE = hasattr(os, "posix_fadvise")
# A window in the page cache takes some 1.5 microseconds, one on disk 100 or more. One read after the other, a disk is
# mostly waited for; told beforehand what is wanted, it fetches many at once.
SLOW_WINDOW_S = 20e-6


class WindowReader:
    """Reads `num_rows` windows of `length` consecutive ids at a time. One thread per reader.

    With `preadv` a window is one system call into the buffer: no page of the file is mapped, so none counts as this
    process's memory, and the system reads ahead no more than asked (a memory map read 10 times slower from a cold disk
    and grew to the size of the file). Where the platform lacks it, a map with random-access advice takes its place.
    While windows come from disk, the system is told all of a batch's before the first is read.

    Args:
        token_file: what to read.
        num_rows: windows per `read`, at most.
        length: ids per window.
        mapped: use the memory map; by default only where `preadv` is missing.

    Raises:
        TokenFileError: if the file has gone or changed since it was opened.
    """

    def __init__(self, token_file: TokenFile, num_rows: int, length: int, *, mapped: bool = not HAS_PREADV) -> None:
        self._token_file = token_file
        self._itemsize = token_file.header.itemsize
        self._start = token_file.payload_start
        self._buffer = np.empty((num_rows, length), token_file.dtype)
        self._may_exceed = token_file.vocab_size <= np.iinfo(token_file.dtype).max
        token_file.require_unchanged()
        fd = os.open(token_file.path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        self._close = weakref.finalize(self, os.close, fd)
        self._fd = fd
        self._rows = [(memoryview(row).cast("B"),) for row in self._buffer]
        self._row_bytes = length * self._itemsize
        self._is_slow = False
        self._map: mmap.mmap | None = None
        if mapped:
            self._map = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
            if hasattr(mmap, "MADV_RANDOM"):
                self._map.madvise(mmap.MADV_RANDOM)

    def read(self, starts: Sequence[int]) -> Int[np.ndarray, "rows length"]:
        """The windows that begin at token positions `starts`, checked against the vocabulary.

        Returns:
            Rows of the reader's own buffer, in the file's dtype: copy them before the next `read`.

        Raises:
            TokenFileError: an id beyond the vocabulary, with its position; a file that has become shorter.
        """
        self._fill(starts)
        rows = self._buffer[: len(starts)]
        if self._may_exceed and int(rows.max()) >= self._token_file.vocab_size:
            for start, row in zip(starts, rows, strict=True):
                self._token_file.check_range(row, int(start))
        return rows

    def close(self) -> None:
        """Close the file; closing twice is fine. An abandoned reader is closed by the garbage collector."""
        if self._map is not None:
            self._map.close()
        self._close()

    def _fill(self, starts: Sequence[int]) -> None:
        if self._map is not None:
            for start, single in zip(starts, self._rows, strict=False):
                begin = self._start + start * self._itemsize
                single[0][:] = self._map[begin : begin + self._row_bytes]
            return
        if self._is_slow and HAS_ADVICE:
            self._announce(starts)
        begin_s = time.perf_counter()
        begins = [self._start + start * self._itemsize for start in starts]
        # one loop in C: at a microsecond a window, what Python does for each is a tenth
        counts = list(map(os.preadv, repeat(self._fd), self._rows, begins))
        if counts.count(self._row_bytes) != len(counts):
            for start, row, count in zip(starts, self._rows, counts, strict=False):
                if count != self._row_bytes:
                    self._finish_row(start, row[0])
        self._is_slow = time.perf_counter() - begin_s > SLOW_WINDOW_S * len(starts)

    def _announce(self, starts: Sequence[int]) -> None:
        for start in starts:
            begin = self._start + start * self._itemsize
            os.posix_fadvise(self._fd, begin, self._row_bytes, os.POSIX_FADV_WILLNEED)

    def _finish_row(self, start: int, row: memoryview) -> None:
        """Read a window again to its end: one call may return less than asked (a signal, a network disk)."""
        begin, done = self._start + start * self._itemsize, 0
        while done < self._row_bytes:
            count = os.preadv(self._fd, [row[done:]], begin + done)
            if count == 0:
                raise TokenFileError(f"{self._token_file.path} has become shorter since it was opened")
            done += count
