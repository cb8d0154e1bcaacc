"""`metrics.jsonl`: one row per event of a run, readable while it grows and after any kill."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torchledger.trainer.durable import write_text
from torchledger.trainer.errors import RunFolderError

__all__ = ["MetricsWriter", "read_metrics"]


class MetricsWriter:
    """Appends rows, each flushed at once.

    Args:
        path: the file. Rows already in it at or beyond `first_step` are dropped, as is a last row cut in two: those
            steps are run again.
        first_step: the update that comes next.

    Raises:
        RunFolderError: a full disk, or a folder that cannot be written to.
    """

    def __init__(self, path: Path, first_step: int) -> None:
        self._path = path
        try:
            if path.exists():
                kept = [row for row in read_metrics(path) if _belongs_before(row, first_step)]
                write_text(path, "".join(_line(row) for row in kept))
            self._stream = path.open("a", encoding="utf-8")
        except OSError as error:
            raise RunFolderError(f"cannot write {path}: {error.strerror}") from error

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one row. Numbers that JSON does not have (infinity, not a number) become null.

        Raises:
            RunFolderError: a full disk.
        """
        try:
            self._stream.write(_line(row))
            self._stream.flush()
        except OSError as error:
            raise RunFolderError(f"cannot write {self._path}: {error.strerror}") from error

    def close(self) -> None:
        """Close the file."""
        try:
            self._stream.close()
        except OSError as error:  # closing flushes what a full disk refused
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
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}") from error
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(json.loads(line))
        except ValueError:
            if number == len(lines):
                break
            raise RunFolderError(f"{path} is damaged at line {number}") from None
    return rows


def _belongs_before(row: Mapping[str, Any], first_step: int) -> bool:
    """Rows of steps and their spikes carry the update they describe; all others the number of updates done.

    A run that begins anew has nothing before it.
    """
    step = int(row.get("step", 0))
    return step < first_step if row.get("kind") in {"step", "spike"} or first_step == 0 else step <= first_step


def _line(row: Mapping[str, Any]) -> str:
    finite = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()
    }
    return json.dumps(finite, allow_nan=False) + "\n"
