"""Where documents begin within windows of tokens: what a document mask needs, and what it leaves of attention."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from jaxtyping import Int64

from torchledger.trainer.tokenfile import TokenFile

__all__ = ["Documents"]

MOST_WINDOWS = 1 << 16  # windows that are cut up at once, where a whole file is


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents of a token file, cut by windows into pieces. Holds 8 bytes a document, whatever was read.

    Attributes:
        offsets: where each document starts, ascending from 0, and at last the number of tokens.
    """

    offsets: Int64[np.ndarray, " documents_plus_1"]

    @classmethod
    def of(cls, token_file: TokenFile) -> Self:
        """The documents of this file.

        Raises:
            TokenFileError: if nothing tells where they end.
        """
        return cls(token_file.documents().astype(np.int64))

    def numbers(self, starts: Int64[np.ndarray, " rows"], length: int) -> Int64[np.ndarray, "rows length"]:
        """For each token of the windows of `length` that begin at `starts`, which document of its window it is in.

        The first document of each window is number 0, and numbers never decrease: tokens of a row belong together
        where their numbers are equal. An end-of-text id is in the document that it ends (in llm.c's files, begins).
        """
        lengths, first_pieces = self._pieces(starts, length)
        numbers = np.arange(len(lengths)) - np.repeat(first_pieces[:-1], np.diff(first_pieces))
        return np.repeat(numbers, lengths).reshape(len(starts), length)

    def squared_lengths(self, starts: Int64[np.ndarray, " rows"], length: int) -> int:
        """Σ Lᵢ² over the pieces of these windows: pairs of tokens within one document, both directions counted.

        Without a document mask the pairs are rows·length². Reads no tokens.
        """
        lengths, _ = self._pieces(starts, length)
        return int((lengths * lengths).sum())

    def all_squared_lengths(self, num_windows: int, length: int) -> int:
        """Σ Lᵢ² over the first `num_windows` windows that a file is cut into, in bounded memory."""
        return sum(
            self.squared_lengths(np.arange(first, min(first + MOST_WINDOWS, num_windows)) * length, length)
            for first in range(0, num_windows, MOST_WINDOWS)
        )

    def _pieces(
        self, starts: Int64[np.ndarray, " rows"], length: int
    ) -> tuple[Int64[np.ndarray, " pieces"], Int64[np.ndarray, " rows_plus_1"]]:
        """Lengths of all pieces, row after row; and which is the first of each row, and at last how many there are."""
        first = np.searchsorted(self.offsets, starts, side="right")  # the first document that begins within the row
        counts = np.searchsorted(self.offsets, starts + length, side="left") - first
        first_pieces = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts + 1)])
        # edges, in tokens of the whole batch: each row's begin, then the begin of each document within it
        rows = np.repeat(np.arange(len(starts)), counts + 1)
        within = np.arange(len(rows)) - first_pieces[rows]
        inside = within > 0
        edges = rows * length
        edges[inside] += self.offsets[(first[rows] + within - 1)[inside]] - starts[rows[inside]]
        return np.diff(edges, append=len(starts) * length), first_pieces
