"""A token file read through once: proved as far as its format allows, and counted."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, Int64

from torchledger.trainer.entropy import unigram_entropy
from torchledger.trainer.tokenfile import TokenFile

__all__ = ["DocumentLengths", "Survey", "survey"]

COUNTED_IDS = 1 << 24  # beyond such an id nothing is counted: the counts alone would take 128 MiB


@dataclass(frozen=True, slots=True)
class DocumentLengths:
    """How many documents there are, and how long, in tokens (end-of-text ids counted)."""

    num_documents: int
    shortest: int
    median: float
    mean: float
    longest: int


@dataclass(frozen=True, slots=True)
class Survey:
    """What is in a token file.

    Attributes:
        num_tokens: token ids.
        largest_id: the largest; None where there is none.
        num_distinct: different ids; None where they are too large to be counted, as the next.
        unigram_entropy_nats: of the ids, per token.
        num_end_of_text: end-of-text ids; None where it is not known which that is.
        documents: None where nothing tells where they end.
        ids_sha256: of the ids as they stand in the file.
        is_proven: whether the file has checksums, and they are right; without them only sizes and ids are.
    """

    num_tokens: int
    largest_id: int | None
    num_distinct: int | None
    unigram_entropy_nats: float | None
    num_end_of_text: int | None
    documents: DocumentLengths | None
    ids_sha256: str
    is_proven: bool


class _Counts:
    """Counts of ids, as many as the largest asks for."""

    def __init__(self, mark: int | None) -> None:
        self.largest: int | None = None
        self.counts: Int64[np.ndarray, " ids"] | None = np.zeros(0, np.int64)
        self.marks = 0
        self._mark = mark

    def add(self, ids: Int[np.ndarray, " tokens"]) -> None:
        if len(ids) == 0:
            return
        most = int(ids.max())
        self.largest = most if self.largest is None else max(self.largest, most)
        if self._mark is not None:
            self.marks += int(np.count_nonzero(ids == self._mark))
        if self.counts is None or self.largest >= COUNTED_IDS:
            self.counts = None
            return
        found = np.bincount(ids.astype(np.int64), minlength=self.largest + 1)
        found[: len(self.counts)] += self.counts
        self.counts = found


def survey(token_file: TokenFile, progress: Callable[[int, int, str], None] | None = None) -> Survey:
    """Read a token file whole, prove it and count it. Memory: a megabyte of ids, the counts, 8 bytes a document.

    Args:
        token_file: the file.
        progress: told (tokens done, tokens in all, `reading`).

    Raises:
        TokenFileError: naming the first fault: an id beyond the vocabulary with its position, a checksum, offsets.
    """
    counted, done, mark = _Counts(token_file.header.end_of_text_id), 0, token_file.header.end_of_text_id

    def observe(ids: Int[np.ndarray, " tokens"]) -> None:
        nonlocal done
        counted.add(ids)
        done += len(ids)
        if progress is not None:
            progress(done, token_file.num_tokens, "reading")

    ids_sha256 = token_file.verify(observe)
    counts = counted.counts
    return Survey(
        num_tokens=token_file.num_tokens,
        largest_id=counted.largest,
        num_distinct=None if counts is None else int(np.count_nonzero(counts)),
        unigram_entropy_nats=None if counts is None or not len(counts) else unigram_entropy(counts),
        num_end_of_text=None if mark is None else counted.marks,
        documents=_lengths(token_file),
        ids_sha256=ids_sha256,
        is_proven=token_file.layout == "torchledger" and token_file.span is None,
    )


def _lengths(token_file: TokenFile) -> DocumentLengths | None:
    if not token_file.knows_documents:
        return None
    lengths = np.diff(token_file.documents().astype(np.int64))
    if len(lengths) == 0:
        return None
    return DocumentLengths(
        len(lengths), int(lengths.min()), float(np.median(lengths)), float(lengths.mean()), int(lengths.max())
    )
