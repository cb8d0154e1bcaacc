"""Batches of token windows: batch n is a pure function of (file, seed, n), read ahead in the background."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import torch
from jaxtyping import Int64

from torchledger.trainer.order import BatchOrder
from torchledger.trainer.prefetch import Prefetch
from torchledger.trainer.tokenfile import TokenFile, TokenFileError
from torchledger.trainer.windows import WindowReader

__all__ = ["Batch", "Batches", "ValidationBatches", "num_windows"]

Batch = tuple[Int64[torch.Tensor, "batch sequence"], Int64[torch.Tensor, "batch sequence"]]


def num_windows(token_file: TokenFile, sequence_length: int) -> int:
    """Windows of `sequence_length` inputs and their targets in the file: (tokens - 1) div sequence_length.

    Window w holds tokens w·T to w·T + T: neighbours share one token, the last target of one being the first input of
    the next, so that each token is a target once (but the first, and a last stretch too short for a window).

    Raises:
        TokenFileError: if there is not even one.
    """
    if sequence_length < 1:
        raise TokenFileError(f"a sequence length of {sequence_length} is none; it must be at least 1")
    count = (token_file.num_tokens - 1) // sequence_length
    if count < 1:
        raise TokenFileError(
            f"{token_file.path} has {token_file.num_tokens:,} tokens, too few for one window of {sequence_length:,} "
            f"and its last target ({sequence_length + 1:,}); use more data or a sequence length of at most "
            f"{max(token_file.num_tokens - 1, 0):,}"
        )
    return count


class _Loader:
    """Reads windows into new tensors; has its own buffer, so each thread has its own loader."""

    def __init__(self, token_file: TokenFile, num_rows: int, sequence_length: int, device: torch.device) -> None:
        self._reader = WindowReader(token_file, num_rows, sequence_length + 1)
        self._sequence_length = sequence_length
        self._device = device

    def load(self, windows: Int64[np.ndarray, " rows"]) -> Batch:
        """Inputs and targets of these windows, on the CPU; in pinned memory if they shall go to CUDA."""
        rows = self._reader.read((windows * self._sequence_length).tolist())
        shape = (2, len(rows), self._sequence_length)
        if self._device.type == "cuda":
            with torch.cuda.device(self._device):  # else a new thread would open a context on device 0
                both = torch.empty(shape, dtype=torch.int64, pin_memory=True)
        else:
            both = torch.empty(shape, dtype=torch.int64)
        values = both.numpy()
        np.copyto(values[0], rows[:, :-1])
        np.copyto(values[1], rows[:, 1:])
        return both[0], both[1]

    def close(self) -> None:
        self._reader.close()


def _deliver(batch: Batch, device: torch.device) -> Batch:
    """Move a batch to the device. A copy out of pinned memory overlaps with computing; elsewhere nothing overlaps."""
    if device.type == "cpu":
        return batch
    x, y = batch
    pinned = device.type == "cuda"
    return x.to(device, non_blocking=pinned), y.to(device, non_blocking=pinned)


class Batches:
    """The endless stream of training batches. Iterate over it, or ask for any batch by its number.

    Batch n holds samples n·B to n·B + B - 1 of the order in `order.py`: each window once an epoch, permuted anew each
    epoch; a batch may straddle two. `batch(n)` and the n-th iteration give the same values, so a run is resumed with
    `start=position`. With `world_size` ranks, rank r gets rows r·B/world_size onward of the same batch, so any world
    size that divides the batch size sees the same data.

    Use it as a context manager, or `close` it: iteration runs a background thread.

    Args:
        token_file: an opened token file or its path.
        batch_size: B, windows per batch over all ranks.
        sequence_length: T, inputs per window.
        seed: chooses the order.
        start: number of the first batch that iteration yields.
        rank: which share of each batch.
        world_size: into how many shares a batch is cut.
        device: where the tensors shall be; pinned memory and asynchronous copies on CUDA only.

    Attributes:
        position: number of the batch that iteration yields next: the whole state of the loader.
        data_wait_s: seconds that iteration has waited for data so far.

    Raises:
        TokenFileError: from opening or reading; too few tokens for one window; a batch that ranks cannot share.
    """

    def __init__(
        self,
        token_file: TokenFile | Path | str,
        batch_size: int,
        sequence_length: int,
        seed: int,
        start: int = 0,
        *,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device | str = "cpu",
    ) -> None:
        self.token_file = token_file if isinstance(token_file, TokenFile) else TokenFile.open(token_file)
        self.num_windows = num_windows(self.token_file, sequence_length)
        if batch_size < 1 or start < 0:
            raise TokenFileError(f"batch size {batch_size} and start {start} must be at least 1 and 0")
        if batch_size % world_size:
            raise TokenFileError(f"{world_size} ranks cannot share a batch of {batch_size} windows evenly")
        self.batch_size = batch_size
        self.sequence_length = sequence_length
        self.seed = seed
        self.position = start
        self.data_wait_s = 0.0
        self._share = (rank, world_size)
        self._device = torch.device(device)
        self._order = self._new_order()
        self._loader: _Loader | None = None  # for `batch`
        self._ahead: tuple[Prefetch[Batch], _Loader] | None = None  # for iteration
        self._closed = False

    def batch(self, n: int) -> Batch:
        """Inputs and targets of batch n, int64 [B/world_size, T] each; targets are the inputs one token later.

        Raises:
            TokenFileError: an id beyond the vocabulary, with its position; a file that has changed; a closed loader.
        """
        self._check_open()
        if n < 0:
            raise TokenFileError(f"there is no batch {n}; batches count from 0")
        if self._loader is None:
            self._loader = self._new_loader()
        return _deliver(self._loader.load(self._order.windows(n)), self._device)

    def epochs(self, num_batches: int) -> float:
        """How many times `num_batches` batches pass over the file; 1.5 is once and a half."""
        return num_batches * self.batch_size / self.num_windows

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        """The next batch; raises what `batch` raises."""
        self._check_open()
        begin = time.perf_counter()
        if self._ahead is None:
            # The thread must not know `self`: an abandoned stream is then collected, and its thread ended.
            order, loader = self._new_order(), self._new_loader()
            self._ahead = (Prefetch(lambda n: loader.load(order.windows(n)), self.position), loader)
        batch = _deliver(self._ahead[0].get(), self._device)
        self.position += 1
        self.data_wait_s += time.perf_counter() - begin
        return batch

    def close(self) -> None:
        """End the background thread and close the file; closing twice is fine, and `position` stays readable."""
        self._closed = True
        if self._ahead is not None:
            self._ahead[0].close()
            self._ahead[1].close()
        if self._loader is not None:
            self._loader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _new_order(self) -> BatchOrder:
        rank, world_size = self._share
        return BatchOrder(self.num_windows, self.batch_size, self.seed, rank=rank, world_size=world_size)

    def _new_loader(self) -> _Loader:
        return _Loader(self.token_file, self._order.num_rows, self.sequence_length, self._device)

    def _check_open(self) -> None:
        if self._closed:
            raise TokenFileError(f"the batches of {self.token_file.path} are closed")


class ValidationBatches:
    """The same windows in the same order at every evaluation: the file from its beginning, each window once.

    Iterating anew begins anew, and touches no random state and no training stream. The last batch may be smaller, so
    that every window counts: weigh a batch's mean loss by its rows.

    Args:
        token_file: an opened token file or its path.
        batch_size: windows per batch, at most.
        sequence_length: T, inputs per window.
        max_batches: evaluate on the first so many batches only; `None` takes the whole file.
        device: where the tensors shall be.

    Raises:
        TokenFileError: from opening or reading; too few tokens for one window.
    """

    def __init__(
        self,
        token_file: TokenFile | Path | str,
        batch_size: int,
        sequence_length: int,
        *,
        max_batches: int | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.token_file = token_file if isinstance(token_file, TokenFile) else TokenFile.open(token_file)
        if batch_size < 1 or (max_batches is not None and max_batches < 1):
            raise TokenFileError(f"batch size {batch_size} and number of batches {max_batches} must be at least 1")
        available = num_windows(self.token_file, sequence_length)
        self.num_windows = available if max_batches is None else min(available, max_batches * batch_size)
        self.batch_size = batch_size
        self.sequence_length = sequence_length
        self._device = torch.device(device)

    @property
    def num_tokens(self) -> int:
        """Targets predicted in one evaluation."""
        return self.num_windows * self.sequence_length

    def __len__(self) -> int:
        return 1 + (self.num_windows - 1) // self.batch_size

    def __iter__(self) -> Iterator[Batch]:
        """The batches, int64 [at most batch_size, T] twice; the file is closed when the iterator is done or dropped."""
        loader = _Loader(self.token_file, min(self.batch_size, self.num_windows), self.sequence_length, self._device)
        try:
            for first in range(0, self.num_windows, self.batch_size):
                windows = np.arange(first, min(first + self.batch_size, self.num_windows), dtype=np.int64)
                yield _deliver(loader.load(windows), self._device)
        finally:
            loader.close()
