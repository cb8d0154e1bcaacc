"""Put a finished file in its place: a kill, a crash or a full disk leaves the old file or the new one, never half."""

import contextlib
import os
from pathlib import Path

__all__ = ["partial_path", "publish", "write_text"]


def partial_path(path: Path) -> Path:
    """The name a file has while it is being written: hidden, and in the same folder, so that a rename suffices."""
    return path.with_name(f".{path.name}.partial")


def publish(partial: Path, path: Path) -> None:
    """Rename `partial` (already synced to disk) to `path`, and sync the folder, without which a rename can be lost.

    Raises:
        OSError: if the rename fails; `partial` is then still there.
    """
    partial.replace(path)
    with contextlib.suppress(OSError):  # some systems (Windows, some network disks) cannot open or sync a folder
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_text(path: Path, text: str) -> None:
    """Write `text` (UTF-8, line ends as given) to `path`, whole or not at all.

    Raises:
        OSError: if the disk is full or the folder is not writable; an older file at `path` is untouched.
    """
    partial = partial_path(path)
    try:
        with partial.open("wb") as stream:
            stream.write(text.encode("utf-8"))
            stream.flush()
            os.fsync(stream.fileno())
        publish(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
