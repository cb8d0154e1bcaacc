"""Batches of token windows: batch n is a pure function of (files, weights, seed, n), read ahead in the background."""

import math
import time
from collections.abc import Generator, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import torch

from torchledger.trainer.documents import Documents
from torchledger.trainer.loader import Batch, Loader, WeightedFile, deliver, num_windows
from torchledger.trainer.mixture import Mixture
from torchledger.trainer.order import BatchOrder
from torchledger.trainer.prefetch import Prefetch
from torchledger.trainer.tokenfile import TokenFile, TokenFileError

__all__ = ["Batch", "Batches", "ValidationBatches", "WeightedFile", "num_windows"]


class Batches:
    """The endless stream of training batches. Iterate over it, or ask for any batch by its number.

    Batch n holds samples n·B to n·B + B - 1 of the order in `order.py`: each window once an epoch, permuted anew each
    epoch; a batch may straddle two. `batch(n)` and the n-th iteration give the same values, so a run is resumed with
    `start=position`. With `world_size` ranks, rank r gets rows r·B/world_size onward of the same batch, so any world
    size that divides the batch size sees the same data.

    Of several files each sample comes from one of them, by weight (`mixture.py`); each file has its own epochs.

    Use it as a context manager, or `close` it: iteration runs a background thread.

    Args:
        data: an opened token file or its path; or several token files, with weights.
        batch_size: B, windows per batch over all ranks.
        sequence_length: T, inputs per window.
        seed: chooses the order.
        start: number of the first batch that iteration yields.
        rank: which share of each batch.
        world_size: into how many shares a batch is cut.
        device: where the tensors shall be; pinned memory and asynchronous copies on CUDA only.
        documents: whether batches have a third tensor that says which document of its row each input is in.

    Attributes:
        position: number of the batch that iteration yields next: the whole state of the loader.
        data_wait_s: seconds that iteration has waited for data so far.

    Raises:
        TokenFileError: from opening or reading; too few tokens for one window; a batch that ranks cannot share.
    """

    def __init__(
        self,
        data: TokenFile | Path | str | Sequence[WeightedFile],
        batch_size: int,
        sequence_length: int,
        seed: int,
        start: int = 0,
        *,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device | str = "cpu",
        documents: bool = False,
    ) -> None:
        files = [WeightedFile(_opened(data))] if isinstance(data, (TokenFile, Path, str)) else list(data)
        if not files or not all(0 < file.weight < math.inf for file in files):
            raise TokenFileError("a mixture takes at least one file, and each a weight above 0")
        self.token_files = tuple(file.token_file for file in files)
        self.sizes = tuple(num_windows(token_file, sequence_length) for token_file in self.token_files)
        self.num_windows = sum(self.sizes)
        self._mixture = Mixture([file.weight for file in files]) if len(files) > 1 else None
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
        self._has_documents = documents
        self._order = self._new_order()
        self._loader: Loader | None = None  # for `batch`
        self._ahead: tuple[Prefetch[Batch], Loader] | None = None  # for iteration
        self._closed = False

    def batch(self, n: int) -> Batch:
        """Inputs and targets of batch n, int64 [B/world_size, T] each; targets are the inputs one token later.

        With `documents`, also the numbers of the inputs' documents: equal within a row where tokens belong together,
        from 0 and never decreasing. The target of a document's last token is the first of the next, as without them.

        Raises:
            TokenFileError: an id beyond the vocabulary, with its position; a file that has changed; a closed loader.
        """
        self._check_open()
        if n < 0:
            raise TokenFileError(f"there is no batch {n}; batches count from 0")
        if self._loader is None:
            self._loader = self._new_loader()
        return deliver(self._loader.load(self._order.windows(n)), self._device)

    def epochs(self, num_batches: int) -> float:
        """How many times `num_batches` batches pass over the data; 1.5 is once and a half.

        Of several files, over the one that most is repeated of: 1 is where something is first seen again.
        """
        return num_batches * self.batch_size * self._epochs_of_a_sample

    @cached_property
    def _epochs_of_a_sample(self) -> float:
        shares = (1.0,) if self._mixture is None else self._mixture.shares
        return max(share / size for share, size in zip(shares, self.sizes, strict=True))

    def squared_lengths(self, n: int) -> int:
        """Σ Lᵢ² of batch n over all ranks: pairs of tokens within one document. B·T² where documents are not asked for.

        A pure function like the batch itself; reads no tokens and asks no other rank.
        """
        if not self._has_documents:
            return self.batch_size * self.sequence_length**2
        total, windows = 0, self._whole_order.windows(n)
        ends = np.cumsum(self.sizes)
        parts = np.searchsorted(ends, windows, side="right")
        for part in np.unique(parts).tolist():
            places = windows[parts == part] - (ends[part - 1] if part else 0)
            total += self._documents[part].squared_lengths(places * self.sequence_length, self.sequence_length)
        return total

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
        batch = deliver(self._ahead[0].get(), self._device)
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

    @cached_property
    def _documents(self) -> tuple[Documents, ...]:
        return tuple(map(Documents.of, self.token_files)) if self._has_documents else ()

    @cached_property
    def _whole_order(self) -> BatchOrder:
        return BatchOrder(self.sizes, self.batch_size, self.seed, mixture=self._mixture)

    def _new_order(self) -> BatchOrder:
        rank, world_size = self._share
        return BatchOrder(
            self.sizes, self.batch_size, self.seed, rank=rank, world_size=world_size, mixture=self._mixture
        )

    def _new_loader(self) -> Loader:
        rows, length = self._order.num_rows, self.sequence_length
        return Loader(self.token_files, rows, length, self._device, self._documents)

    def _check_open(self) -> None:
        if self._closed:
            raise TokenFileError(f"the batches of {self.token_files[0].path} are closed")


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
        documents: whether batches have a third tensor that says which document of its row each input is in.

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
        documents: bool = False,
    ) -> None:
        self.token_file = _opened(token_file)
        if batch_size < 1 or (max_batches is not None and max_batches < 1):
            raise TokenFileError(f"batch size {batch_size} and number of batches {max_batches} must be at least 1")
        available = num_windows(self.token_file, sequence_length)
        self.num_windows = available if max_batches is None else min(available, max_batches * batch_size)
        self.batch_size = batch_size
        self.sequence_length = sequence_length
        self._device = torch.device(device)
        self._documents = (Documents.of(self.token_file),) if documents else ()

    @property
    def num_tokens(self) -> int:
        """Targets predicted in one evaluation."""
        return self.num_windows * self.sequence_length

    def __len__(self) -> int:
        return 1 + (self.num_windows - 1) // self.batch_size

    def __iter__(self) -> Generator[Batch, None, None]:
        """The batches, int64 [at most batch_size, T] each; the file is closed when the iterator is done or dropped."""
        rows = min(self.batch_size, self.num_windows)
        loader = Loader((self.token_file,), rows, self.sequence_length, self._device, self._documents)
        try:
            for first in range(0, self.num_windows, self.batch_size):
                windows = np.arange(first, min(first + self.batch_size, self.num_windows), dtype=np.int64)
                yield deliver(loader.load(windows), self._device)
        finally:
            loader.close()


def _opened(token_file: TokenFile | Path | str) -> TokenFile:
    return token_file if isinstance(token_file, TokenFile) else TokenFile.open(token_file)
