"""`Saver`: the checkpoints of a run, written at once or while training goes on, by one process or by all ranks."""

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer

from torchledger.trainer.checkpoint import clear_leftovers, prune, state_of, write_checkpoint
from torchledger.trainer.errors import CheckpointError
from torchledger.trainer.manifest import Manifest
from torchledger.trainer.model import Transformer

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["SavedCheckpoint", "Saver"]


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint that is on disk.

    Attributes:
        step: updates done.
        path: its folder.
        num_bytes: its size.
        seconds: what training waited for: all of it, or where it was written beside training, the copy alone.
    """

    step: int
    path: Path
    num_bytes: int
    seconds: float


class Saver:
    """Saves the checkpoints of a run. Making one clears what a killed process left, and deletes what is too many.

    Where training goes on meanwhile, `save` copies the state into host memory and comes back; a thread writes it. That
    takes as many bytes again as parameters and optimizer state, until the thread is done. One checkpoint is written at
    a time: a second `save` waits for the first. Errors come up in whichever method is called next.

    Args:
        folder: of the checkpoints.
        keep: how many stay, the permanent ones beside them.
        permanent_interval: steps between permanent ones; 0 makes none.
        asynchronous: whether training goes on meanwhile.
        group: the ranks that save together, each of which makes a saver at the same time and calls its methods in the
            same order; nothing is one process. Its CPU tensors have to go through gloo.
    """

    def __init__(
        self,
        folder: Path,
        *,
        keep: int,
        permanent_interval: int = 0,
        asynchronous: bool = False,
        group: "ProcessGroup | None" = None,
    ) -> None:
        self._folder, self._keep, self._permanent_interval = folder, keep, permanent_interval
        self._done: list[SavedCheckpoint] = []
        self._running: tuple[Manifest, float, Future[Any]] | None = None
        self._thread = ThreadPoolExecutor(1, "checkpoint") if asynchronous else None
        self._group = group
        if group is None or group.rank() == 0:
            clear_leftovers(folder)
            prune(folder, keep)
        if group is not None:
            import torch.distributed as dist

            dist.barrier(group)
            if asynchronous:  # collectives of a thread must not get between those of training
                self._group = dist.new_group(dist.get_process_group_ranks(group), backend="gloo")

    def save(
        self, model: Transformer, optimizer: Optimizer, manifest: Manifest, extra: Mapping[str, Tensor] | None = None
    ) -> None:
        """Save, or begin to: all ranks together.

        Args:
            model: whose parameters and buffers are written.
            optimizer: whose state is written.
            manifest: what it is; `files` and `permanent` are filled in here.
            extra: further tensors, the same on every rank (`checkpoint.load_extra` reads them).

        Raises:
            CheckpointError: this or the one before could not be saved, on any rank. Earlier ones are whole.
        """
        self._collect(wait=True)
        begin = time.perf_counter()
        interval = self._permanent_interval
        manifest = replace(manifest, permanent=interval > 0 and manifest.step % interval == 0)
        state = state_of(model, optimizer, extra)
        if self._thread is None:
            path = write_checkpoint(self._folder, state, manifest, keep=self._keep, group=self._group)
            self._tell(path, manifest, time.perf_counter() - begin)
            return
        copied = _copied(state)
        task = self._thread.submit(write_checkpoint, self._folder, copied, manifest, keep=self._keep, group=self._group)
        self._running = (manifest, time.perf_counter() - begin, task)

    def finished(self) -> list[SavedCheckpoint]:
        """What has come to disk since this was last asked. Waits for nothing.

        Raises:
            CheckpointError: one could not be saved.
        """
        self._collect(wait=False)
        done, self._done = self._done, []
        return done

    def wait(self) -> list[SavedCheckpoint]:
        """What has come to disk since it was last asked, once nothing is being written any more.

        Raises:
            CheckpointError: one could not be saved.
        """
        self._collect(wait=True)
        return self.finished()

    def close(self) -> None:
        """End the thread; what it writes is finished first. An error that nobody asked for is lost."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)

    def _collect(self, *, wait: bool) -> None:
        if self._running is None:
            return
        manifest, seconds, task = self._running
        if not wait and not task.done():
            return
        self._running = None
        self._tell(task.result(), manifest, seconds)

    def _tell(self, path: Path, manifest: Manifest, seconds: float) -> None:
        try:
            num_bytes = sum(file.stat().st_size for file in path.iterdir())
        except OSError as error:
            raise CheckpointError(f"cannot read {path}, which was just saved: {error.strerror}") from error
        self._done.append(SavedCheckpoint(manifest.step, path, num_bytes, seconds))


def _copied(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state in host memory of its own, each DTensor laid out as it is."""
    return {key: tensor.detach().to("cpu", copy=True) for key, tensor in state.items()}
