"""The order of the data: batch n is a pure function of (seed, n), computed anywhere in it at once, with no index kept.

A file of tokens is cut into windows. Sample s (batch n holds samples n·B to n·B + B - 1) is window `permute(s mod W)`
of epoch `s div W`, where W is the number of windows and the permutation is keyed by (seed, epoch): every window once an
epoch, in another order each epoch. So a loader's whole state is one integer, and finding one's place costs nothing.

Of several files each has its own windows, epochs and permutations; which file a sample comes from, and how many of that
file came before it, `mixture` tells.
"""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Int64, UInt64

from torchledger.trainer.mixture import Mixture

__all__ = ["BatchOrder", "Permutation", "mixed_windows", "sample_windows"]

NUM_ROUNDS = 8  # Luby and Rackoff prove 4 for large halves; ours are small, and rounds are cheap
BLOCK_SAMPLES = 16_384  # the order is computed for this many samples at once, to spread NumPy's cost per call


@dataclass(frozen=True, slots=True)
class Permutation:
    """A keyed bijection of 0 .. size - 1 that needs no table.

    A Feistel network (Luby and Rackoff 1988) over the smallest power of two that holds `size`, its two halves differing
    by at most one bit, restricted to `size` by walking on while the result lies outside (Black and Rogaway 2002,
    "cycle-walking"): less than one extra pass on average, since the power of two is below 2·size.
    """

    size: int
    round_keys: tuple[int, ...]

    @classmethod
    def keyed(cls, size: int, seed: int, epoch: int, part: int = 0) -> "Permutation":
        """The permutation of `size` elements for this seed (any integer), epoch and part of a mixture."""
        assert size >= 1
        text = f"torchledger order {seed} {epoch}{f' {part}' if part else ''}".encode()
        digest = hashlib.blake2b(text, digest_size=8 * NUM_ROUNDS).digest()
        return cls(size, struct.unpack(f"<{NUM_ROUNDS}Q", digest))

    def __call__(self, indices: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        """Where each of `indices` (0 <= index < size) goes."""
        values = self._encipher(indices.astype(np.uint64))
        while (outside := values >= self.size).any():
            values[outside] = self._encipher(values[outside])
        return values.astype(np.int64)

    def _encipher(self, values: UInt64[np.ndarray, " n"]) -> UInt64[np.ndarray, " n"]:
        bits = (self.size - 1).bit_length()
        low_bits = np.uint64(bits - bits // 2)
        low_mask, high_mask = np.uint64((1 << int(low_bits)) - 1), np.uint64((1 << bits // 2) - 1)
        high, low = values >> low_bits, values & low_mask
        spare = (np.empty_like(values), np.empty_like(values))
        for i, key in enumerate(self.round_keys):
            if i % 2 == 0:
                low ^= _mix(high, key, *spare) & low_mask
            else:
                high ^= _mix(low, key, *spare) & high_mask
        return (high << low_bits) | low


def _mix(
    values: UInt64[np.ndarray, " n"], key: int, h: UInt64[np.ndarray, " n"], shifted: UInt64[np.ndarray, " n"]
) -> UInt64[np.ndarray, " n"]:
    """MurmurHash3's 64-bit finaliser (Appleby 2011, `fmix64`) of value + key, modulo 2**64; written to `h`."""
    np.add(values, np.uint64(key), out=h)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        h ^= np.right_shift(h, np.uint64(33), out=shifted)
        h *= np.uint64(factor)
    h ^= np.right_shift(h, np.uint64(33), out=shifted)
    return h


@lru_cache(maxsize=64)  # a loader and its prefetcher around an epoch's end, in each part of a mixture
def _keyed(size: int, seed: int, epoch: int, part: int) -> Permutation:
    return Permutation.keyed(size, seed, epoch, part)


def sample_windows(
    seed: int, first_sample: int, num_samples: int, num_windows: int, part: int = 0
) -> Int64[np.ndarray, " samples"]:
    """The window that each of samples `first_sample` .. `first_sample + num_samples - 1` reads.

    Pure: the same arguments give the same windows on every machine, and neighbours may straddle an epoch's end.
    """
    assert first_sample >= 0
    assert num_windows >= 1
    windows = np.empty(num_samples, np.int64)
    done = 0
    while done < num_samples:
        epoch, position = divmod(first_sample + done, num_windows)
        count = min(num_samples - done, num_windows - position)
        indices = np.arange(position, position + count, dtype=np.int64)
        windows[done : done + count] = _keyed(num_windows, seed, epoch, part)(indices)
        done += count
    return windows


def mixed_windows(
    seed: int, first_sample: int, num_samples: int, sizes: Sequence[int], mixture: Mixture
) -> Int64[np.ndarray, " samples"]:
    """The same for several files of `sizes` windows each, numbered through: those of the first file come first."""
    parts, places = mixture.draw(first_sample, num_samples)
    windows = np.empty(num_samples, np.int64)
    offset = 0
    for part, size in enumerate(sizes):
        chosen = parts == part
        of_part = places[chosen]  # neighbours in their part's own stream
        if len(of_part):
            windows[chosen] = sample_windows(seed, int(of_part[0]), len(of_part), size, part) + offset
        offset += size
    return windows


class BatchOrder:
    """Which windows each batch holds. One thread per object: it remembers the stretch it computed last.

    Args:
        num_windows: W, windows in the file; of several files, of each.
        batch_size: B, windows per batch over all ranks.
        seed: chooses the order.
        rank: which share of each batch: rows rank·B/world_size onward.
        world_size: into how many equal shares a batch is cut.
        mixture: how several files are drawn from. Windows are then numbered through, the first file's first.
    """

    def __init__(
        self,
        num_windows: int | Sequence[int],
        batch_size: int,
        seed: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        mixture: Mixture | None = None,
    ) -> None:
        assert batch_size % world_size == 0
        assert 0 <= rank < world_size
        self._sizes = (num_windows,) if isinstance(num_windows, int) else tuple(num_windows)
        assert len(self._sizes) == (1 if mixture is None else len(mixture.shares))
        self.num_windows = sum(self._sizes)
        self.batch_size = batch_size
        self.num_rows = batch_size // world_size
        self._seed = seed
        self._mixture = mixture
        self._first_row = rank * self.num_rows
        self._batches_per_block = max(1, min(BLOCK_SAMPLES, self.num_windows) // batch_size)
        self._block = -1
        self._samples = np.empty(0, np.int64)

    def windows(self, n: int) -> Int64[np.ndarray, " rows"]:
        """The windows of this rank's rows of batch n (n >= 0)."""
        block, row = divmod(n, self._batches_per_block)
        if block != self._block:
            size = self._batches_per_block * self.batch_size
            if self._mixture is None:
                self._samples = sample_windows(self._seed, block * size, size, self.num_windows)
            else:
                self._samples = mixed_windows(self._seed, block * size, size, self._sizes, self._mixture)
            self._block = block
        first = row * self.batch_size + self._first_row
        return self._samples[first : first + self.num_rows]
