"""A run's folder: what was asked, what it ran on, what happened, its checkpoints.

runs/
    latest -> stdlib-20260101-120000
    stdlib-20260101-120000/
        config.toml          as resolved; training again from it does the same
        environment.json     what it first ran on
        tokenizer.json       a copy, so that samples need no data
        metrics.jsonl        one row per step, evaluation, checkpoint, sample
        checkpoints/
"""

import contextlib
import datetime as dt
import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from torchledger import config as configs
from torchledger.trainer.durable import write_text
from torchledger.trainer.errors import RunFolderError
from torchledger.trainer.locks import Taken, alone, require_open
from torchledger.trainer.metrics import tells_of
from torchledger.trainer.run_config import RunConfig

__all__ = ["RunFolder"]

LATEST = "latest"
#: What a run writes into its folder while it trains, and when its books are closed.
NAMES = (
    *("config.toml", "environment.json", "tokenizer.json", "metrics.jsonl", "checkpoints"),
    *("books.json", "ledger.json", "ledger-trace.json", "ledger-measured.json", "machine.json", "report.html"),
)
_LOCK_NAME = ".lock"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run. Make one with `create` or `open`."""

    path: Path

    @property
    def config_path(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.toml"

    @property
    def environment_path(self) -> Path:
        """What the run first ran on."""
        return self.path / "environment.json"

    @property
    def metrics_path(self) -> Path:
        """One row per event."""
        return self.path / "metrics.jsonl"

    @property
    def tokenizer_path(self) -> Path:
        """The tokenizer of the data."""
        return self.path / "tokenizer.json"

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    @classmethod
    def create(cls, config: RunConfig, now: dt.datetime, path: Path | None = None) -> Self:
        """Make the folder of a new run and, in `runs`, point `latest` to it.

        Args:
            config: the resolved configuration.
            now: the time, UTC, for its name.
            path: the folder, in place of `<runs>/<name>-<UTC time>`.

        Raises:
            RunFolderError: there is a run in it already, or files that it would write over, or it cannot be made.
        """
        target = _unused(config.runs / f"{config.name}-{now:%Y%m%d-%H%M%S}") if path is None else path
        folder = cls(target)
        folder.require_free()
        try:
            target.mkdir(parents=True, exist_ok=True)
            if path is None:
                _point_latest(target)
        except OSError as error:
            raise RunFolderError(f"cannot make the run folder {target}: {error.strerror}") from error
        return folder

    @classmethod
    def open(cls, path: Path) -> Self:
        """The folder of a run that has begun; `path` may be the folder, `runs/latest`, or something inside it.

        Raises:
            RunFolderError: there is no run.
        """
        for candidate in (path, *path.parents):
            if cls(candidate).config_path.is_file():
                return cls(candidate.resolve())
        raise RunFolderError(f"no run in {path}: there is no config.toml")

    @property
    def has_begun(self) -> bool:
        """Whether a run has begun in it: a `config.toml` alone may be somebody's own."""
        return self.config_path.exists() and self.environment_path.exists()

    @property
    def has_saved(self) -> bool:
        """Whether the run has ever saved a checkpoint: one is there, whole or damaged, or its rows tell of one."""
        is_there = any(any(self.checkpoints.glob(pattern)) for pattern in ("step-*", "damaged-step-*"))
        return is_there or tells_of(self.metrics_path, "checkpoint")

    def require_free(self) -> None:
        """Refuse a folder that a run has begun in, or that has files of the names that a run writes.

        Files of other names are let be: a run stands beside them.

        Raises:
            RunFolderError: a process trains in it right now (its number and host are told), there is a run in it
                already, or something that the run would write over.
        """
        if self.has_begun or self.metrics_path.exists() or self.checkpoints.exists():
            with self._telling_who():
                require_open(self.path / _LOCK_NAME)
            if not self.has_begun:
                why = "has what is left of a run in it, and no config.toml to go on by"
                raise RunFolderError(f"{self.path} {why}; choose another folder, or take it away")
            words = f"torchledger train --resume {shlex.quote(str(self.path))}"
            if self.has_saved:
                raise RunFolderError(f"{self.path} has a run in it; {words} goes on with it, or choose another folder")
            why = "has a run in it that has saved nothing to go on from"
            raise RunFolderError(f"{self.path} {why}; {words} begins it again, or choose another folder")
        taken = [name for name in NAMES if (self.path / name).exists()]
        if taken:
            them = "it" if len(taken) == 1 else "them"
            raise RunFolderError(
                f"{self.path} has {', '.join(taken)} in it, and a run would write over {them}; choose another folder, "
                f"or take {them} away"
            )

    def require_writable(self) -> None:
        """Refuse a folder that is there and cannot be written to, or that could not be made.

        Raises:
            RunFolderError: why not.
        """
        there = next(each for each in (self.path, *self.path.absolute().parents) if each.exists())
        if not there.is_dir():
            raise RunFolderError(f"cannot make the run folder {self.path}: {there} is a file; choose another folder")
        if not os.access(there, os.W_OK | os.X_OK):
            raise RunFolderError(
                f"cannot write to {there}: permission denied; choose another folder"
            ) from PermissionError

    def config(self) -> RunConfig:
        """The configuration that the run was begun with.

        Raises:
            ConfigError: damaged.
        """
        return configs.load(self.config_path, RunConfig).value

    def write_start(self, config: RunConfig, environment: Mapping[str, Any], tokenizer: Path | None) -> None:
        """Write what is known before the first step; `config.toml` goes last and marks the folder as a run.

        Without a tokenizer (of tokens whose own is not known) the run has none, and writes no text.

        Raises:
            RunFolderError: it cannot be written.
        """
        try:
            write_text(self.environment_path, json.dumps(environment, indent=2) + "\n")
            if tokenizer is not None:
                shutil.copyfile(tokenizer, self.tokenizer_path)
        except OSError as error:
            raise RunFolderError(f"cannot write to {self.path}: {error.strerror}") from error
        self.write_config(config)

    def write_config(self, config: RunConfig) -> None:
        """Write the configuration as the run goes on with it.

        Raises:
            RunFolderError: it cannot be written.
        """
        try:
            write_text(self.config_path, configs.to_toml(config))
        except OSError as error:
            raise RunFolderError(f"cannot write to {self.path}: {error.strerror}") from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """While inside, no other process may train in this folder. A killed process leaves no lock behind.

        Raises:
            RunFolderError: another process trains in it (its number and host are told), or it cannot be written to.
        """
        with contextlib.ExitStack() as stack:
            with self._telling_who():
                stack.enter_context(alone(self.path / _LOCK_NAME))
            yield

    @contextlib.contextmanager
    def _telling_who(self) -> Iterator[None]:
        try:
            yield
        except Taken as taken:
            holder = f" ({taken.holder})" if taken.holder else ""
            raise RunFolderError(
                f"another process is training in {self.path} right now{holder}; wait for it, or end it"
            ) from None
        except OSError as error:
            raise RunFolderError(f"cannot write to {self.path}: {error.strerror}") from error


def _unused(path: Path) -> Path:
    """The path, or the first of `<path>-2`, `<path>-3`, ... that is not there: two runs may begin in one second."""
    number, found = 1, path
    while found.exists():
        number += 1
        found = path.with_name(f"{path.name}-{number}")
    return found


def _point_latest(target: Path) -> None:
    """Let `latest` beside `target` point to it, in one step. Where there are no links, there is no `latest`."""
    link = target.parent / LATEST
    if link.exists() and not link.is_symlink():
        return
    fresh = target.parent / f".{LATEST}.partial"
    with contextlib.suppress(OSError):
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target.name)
        fresh.replace(link)
