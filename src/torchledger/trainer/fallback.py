"""The checkpoint that a run goes on from: the newest, or where that one is damaged, the newest before it that loads.

A checkpoint is renamed as the last act of saving, so what a kill leaves is never half. What a disk does later (a lost
sector, a copy that was cut short) shows when it is read: every byte is under a checksum.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from torchledger.trainer.checkpoint import latest_checkpoint
from torchledger.trainer.errors import CheckpointError, CheckpointMismatch, ResumeRefused
from torchledger.trainer.manifest import Manifest

__all__ = ["Damaged", "Usable", "newest_usable", "newest_whole", "set_aside"]

Loaded = TypeVar("Loaded")

_ASIDE = "damaged-"


@dataclass(frozen=True, slots=True)
class Damaged:
    """A checkpoint that cannot be read, and why."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class Usable(Generic[Loaded]):
    """What a run goes on from.

    Attributes:
        path: the checkpoint.
        loaded: what loading it gave.
        damaged: newer ones that could not be read, the newest first.
    """

    path: Path
    loaded: Loaded
    damaged: tuple[Damaged, ...]


def newest_whole(folder: Path) -> Path:
    """The newest checkpoint in `folder` whose files are all there, in full length; their bytes are not read.

    Raises:
        CheckpointError: there is none; what is wrong with those that are there is named.
    """
    latest = latest_checkpoint(folder)
    if latest is None:
        found = "".join(f"\n  {_fault_of(path) or path}" for path in _newest_first(folder))
        raise CheckpointError(f"no whole checkpoint in {folder}; begin a new run{found}")
    return latest


def newest_usable(
    checkpoint: Path,
    look: Callable[[Path], object],
    load: Callable[[Path], Loaded],
    agree: Callable[[bool], bool] = lambda is_damaged: is_damaged,
) -> Usable[Loaded]:
    """Load a checkpoint, or where it is damaged the newest before it that loads.

    Args:
        checkpoint: the first that is tried.
        look: reads what is needed to know whether to load at all; where ranks load together, nothing that they have to
            enter together.
        load: reads the rest, all ranks together.
        agree: whether any rank has found it damaged; all ranks together.

    Raises:
        CheckpointMismatch, ResumeRefused: from `look` or `load`; an older one would be no better.
        CheckpointError: none loads; each is named with its fault.
    """
    damaged = [Damaged(path, fault) for path in _newer(checkpoint) if (fault := _fault_of(path))]
    for path in (checkpoint, *_older(checkpoint)):
        reason = _reason_of(look, path)
        if agree(bool(reason)):
            damaged.append(Damaged(path, reason or "another rank cannot read it"))
            continue
        found: list[Loaded] = []
        reason = _reason_of(lambda path, found=found: found.append(load(path)), path)  # type: ignore[misc]
        if not agree(bool(reason)):
            return Usable(path, found[0], tuple(damaged))
        damaged.append(Damaged(path, reason or "another rank cannot read it"))
    listed = "".join(f"\n  {each.reason}" for each in damaged)
    raise CheckpointError(f"no checkpoint in {checkpoint.parent} can be read; begin a new run:{listed}")


def set_aside(damaged: Sequence[Damaged]) -> None:
    """Rename damaged checkpoints (`damaged-step-...`), so that they are neither counted nor taken for one again.

    Nothing is deleted: what is wrong may be the disk's passing mood. Where renaming fails, they stay as they are.
    """
    for each in damaged:
        with contextlib.suppress(OSError):
            each.path.rename(each.path.with_name(_ASIDE + each.path.name))


def _reason_of(act: Callable[[Path], object], path: Path) -> str:
    """Why `act` finds the checkpoint damaged; empty where it does not."""
    try:
        act(path)
    except (CheckpointMismatch, ResumeRefused):
        raise
    except CheckpointError as error:
        return str(error)
    return ""


def _fault_of(path: Path) -> str:
    return _reason_of(Manifest.read, path)


def _newest_first(folder: Path) -> list[Path]:
    return sorted((path for path in folder.glob("step-*") if path.is_dir()), reverse=True)


def _newer(checkpoint: Path) -> list[Path]:
    return [path for path in _newest_first(checkpoint.parent) if path.name > checkpoint.name]


def _older(checkpoint: Path) -> list[Path]:
    return [path for path in _newest_first(checkpoint.parent) if path.name < checkpoint.name]
