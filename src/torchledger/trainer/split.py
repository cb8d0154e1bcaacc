"""Training or validation: decided by hashes of names, whatever the order and number of the other files."""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from torchledger.trainer.sources import SourceFile, Sources

__all__ = ["Split", "choose_split"]


@dataclass(frozen=True, slots=True)
class Split:
    """Which part of the sources is for validation.

    `by` is `file` (then `validation_files` says which), `record` (each document by the hash of its file's name and its
    number), `document` (of an only text, each by the hash of its number), or `slice` (from byte `first_validation_byte`
    of the only file, moved on to the next line's start).
    """

    by: Literal["file", "record", "document", "slice"]
    validation_fraction: float
    seed: int
    validation_files: frozenset[str] = frozenset()
    first_validation_byte: int = 0

    @property
    def rule(self) -> str:
        """The rule in words."""
        share = f"{self.validation_fraction:g}"
        return {
            "file": f"by file: hash of (seed, name) below {share}",
            "record": f"by document: hash of (seed, file, number) below {share}",
            "document": f"by document: hash of (seed, number) below {share}",
            "slice": f"the last {share} of the file, from a line's start",
        }[self.by]

    def validates_document(self, number: int) -> bool:
        """Whether document `number` of a file split by document is for validation."""
        return _share(self.seed, str(number)) < self.validation_fraction

    def validates_record(self, name: str, number: int) -> bool:
        """Whether document `number` of the file `name` is for validation."""
        return _share(self.seed, f"{name} {number}") < self.validation_fraction


def choose_split(sources: Sources, validation_fraction: float, seed: int) -> Split:
    """Split by record where there are tables; else by file; a single file by documents if it has enough, else its end.

    Of two files or more, at least one is for training and one for validation: the one with the largest and the one with
    the smallest hash. A single file is cut by documents if end-of-text marks make 20/fraction of them (then fewer than
    one file in 10**8 has none for validation).
    """
    assert 0 < validation_fraction < 1
    if any(file.format.is_table for file in sources.files):
        return Split("record", validation_fraction, seed)
    if len(sources.files) > 1:
        names = _names_below(sources.files, validation_fraction, seed)
        return Split("file", validation_fraction, seed, frozenset(names))
    only = sources.files[0]
    if only.num_separators >= 20 / validation_fraction:
        return Split("document", validation_fraction, seed)
    first = math.ceil(only.num_bytes * (1 - validation_fraction))
    return Split("slice", validation_fraction, seed, first_validation_byte=first)


def _names_below(files: Sequence[SourceFile], fraction: float, seed: int) -> Iterable[str]:
    ordered = sorted((_share(seed, file.name), file.name) for file in files)
    count = sum(share < fraction for share, _ in ordered)
    return (name for _, name in ordered[: min(max(count, 1), len(ordered) - 1)])


def _share(seed: int, name: str) -> float:
    """A number in [0, 1) that depends on seed and name alone."""
    text = f"torchledger split {seed} {name}".encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") / 2**64
