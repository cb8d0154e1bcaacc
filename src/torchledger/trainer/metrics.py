"""`metrics.jsonl`: one row per event of a run, readable while it grows and after any kill."""

import json
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torchledger.trainer.durable import write_text
from torchledger.trainer.errors import RunFolderError

__all__ = ["MetricsWriter", "read_metrics", "tells_of"]


class MetricsWriter:
    """Appends rows, each flushed at once.

    Args:
        path: the file. Rows already in it at or beyond `first_step` are dropped, as is a last row cut in two: those
            steps are run again.
        first_step: the update that comes next.

    Attributes:
        damage: what was wrong with rows before the last, in words; empty where nothing was. They are left out, and the
            file as it was is kept beside the new one: a run goes on from its checkpoints, and needs no row to.

    Raises:
        RunFolderError: a full disk, or a folder that cannot be written to.
    """

    def __init__(self, path: Path, first_step: int) -> None:
        self._path = path
        self.damage = ""
        try:
            if path.exists():
                rows, damaged = _rows_of(path)
                if damaged:
                    kept_as = path.with_name(f"{path.stem}.damaged{path.suffix}")
                    shutil.copyfile(path, kept_as)
                    self.damage = f"{path} was damaged at line {_listed(damaged)}, which is left out; kept as {kept_as}"
                write_text(path, "".join(_line(row) for row in rows if _belongs_before(row, first_step)))
            self._stream = path.open("ab", buffering=0)  # each row is with the system at once, and by one call
        except OSError as error:
            raise RunFolderError(f"cannot write {path}: {error.strerror}") from error

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one row. Numbers that JSON does not have (infinity, not a number) become null.

        Raises:
            RunFolderError: a full disk.
        """
        try:
            data = _line(row).encode()
            while data := data[self._stream.write(data) :]:
                pass  # a disk that takes a part of it and fills up says so at the next
        except OSError as error:
            raise RunFolderError(f"cannot write {self._path}: {error.strerror}") from error

    def sync(self) -> None:
        """Put the rows so far on disk, where a power cut leaves them.

        Raises:
            RunFolderError: a full disk.
        """
        try:
            os.fsync(self._stream.fileno())
        except OSError as error:
            raise RunFolderError(f"cannot write {self._path}: {error.strerror}") from error

    def close(self) -> None:
        """Close the file.

        Raises:
            RunFolderError: a disk that refuses late what it took before.
        """
        try:
            self._stream.close()
        except OSError as error:
            raise RunFolderError(f"cannot write {self._path}: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics file; a last row cut in two by a kill is left out.

    Raises:
        RunFolderError: it cannot be read, or a row before the last is damaged.
    """
    try:
        rows, damaged = _rows_of(path)
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}") from error
    if damaged:
        raise RunFolderError(
            f"{path} is damaged at line {_listed(damaged)}; torchledger train --resume {path.parent} leaves it out"
        )
    return rows


def tells_of(path: Path, kind: str) -> bool:
    """Whether a whole row of the file is of this kind; a file that is not there, or cannot be read, tells nothing."""
    try:
        return any(row["kind"] == kind for row in _rows_of(path)[0])
    except OSError:
        return False


def _rows_of(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """The rows that are whole, and the numbers of the lines that are not; a last line that is cut is neither."""
    rows, damaged = [], []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line.decode("utf-8"))
        except ValueError:
            row = None
        if isinstance(row, dict) and isinstance(row.get("kind"), str) and isinstance(row.get("step", 0), int):
            rows.append(row)
        elif number < len(lines):
            damaged.append(number)
    return rows, damaged


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:5])) + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")


def _belongs_before(row: Mapping[str, Any], first_step: int) -> bool:
    """Rows of steps and their spikes carry the update they describe; all others the number of updates done.

    A run that begins anew has nothing before it.
    """
    step = int(row.get("step", 0))
    return step < first_step if row.get("kind") in {"step", "spike"} or first_step == 0 else step <= first_step


_ENCODER = json.JSONEncoder(allow_nan=False)


def _line(row: Mapping[str, Any]) -> str:
    try:
        return _ENCODER.encode(row) + "\n"
    except ValueError:  # a number that JSON does not have, which few rows hold
        finite = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()
        }
        return _ENCODER.encode(finite) + "\n"
