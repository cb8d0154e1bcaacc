"""Runs on disk: their configuration, and everything a run folder holds as one `RunRecord`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchledger import config
from torchledger import ledger as books
from torchledger.config.override import read_sets
from torchledger.ledger import Ledger, RunRecord
from torchledger.trainer.metrics import read_metrics
from torchledger.view.page import read_page
from torchledger.view.record import RecordFormatError, record_from_json, record_to_json

if TYPE_CHECKING:
    from torchledger.trainer.run_config import RunConfig

#: What a closed run leaves beside the trainer's own files: prediction, closing table, memory, samples, findings.
BOOKS_NAME = "books.json"
LEDGER_NAME = "ledger.json"
REPORT_NAME = "report.html"


class NoRun(ValueError):
    """A path with no run, report or ledger in it; the message says what is there."""


def load_run_config(file: Path | None, sets: Sequence[str]) -> config.Loaded[RunConfig]:
    """The configuration of a run.

    Raises:
        ConfigError: with every mistake in it, the model's own included.
    """
    from torchledger.trainer.run_config import RunConfig, stdlib_config_path

    return config.load(file or stdlib_config_path(), RunConfig, sets=sets)


def load_run_to_train(file: Path | None, sets: Sequence[str]) -> RunConfig:
    """The configuration of a run that shall begin.

    Raises:
        ConfigError: with every mistake in it; data that is not there is told with them.
    """
    try:
        return load_run_config(file, sets).value
    except config.ConfigError as error:
        raise config.ConfigError(error.source, [*error.mistakes, *_missing_data(file, sets)]) from error


def _missing_data(file: Path | None, sets: Sequence[str]) -> list[tuple[str, str]]:
    """Data of a configuration that is not there, as (dotted path, message); nothing where the file cannot be read."""
    from torchledger.trainer.run_config import stdlib_config_path

    try:
        source = config.read_file(file or stdlib_config_path())[0]
    except config.ConfigError:
        return []
    table = source.under(read_sets(sets)[0]).table
    mixture = table.get("mixture")
    parts = [each.get("data") for each in mixture if isinstance(each, dict)] if isinstance(mixture, list) else []
    named = [("data", table.get("data")), *((f"mixture.{number}.data", each) for number, each in enumerate(parts))]
    return [
        (name, f"nothing is at {place}; run prepare first")
        for name, place in named
        if isinstance(place, str) and not Path(place).exists()
    ]


def write_books(folder: Path, record: RunRecord) -> None:
    """Write what closes a run: `ledger.json`, and `books.json` with the rest that no other file of the folder has.

    Raises:
        OSError: a full disk; what was there before is untouched.
    """
    from torchledger.trainer.durable import write_text

    if record.ledger is not None:
        write_text(folder / LEDGER_NAME, books.to_json(record.ledger, indent=1) + "\n")
    rest = replace(record, config={}, environment={}, metrics=(), ledger=None)
    write_text(folder / BOOKS_NAME, record_to_json(rest, indent=1) + "\n")


def read_run(folder: Path) -> RunRecord:
    """A run folder as one record. What is not there yet is empty: a run may be looked at while it trains.

    Raises:
        NoRun: there is no run.
        ConfigError, RecordFormatError, LedgerFormatError, RunFolderError: a file is damaged or of another schema.
    """
    if not (folder / "config.toml").is_file():
        there = ", ".join(sorted(each.name for each in folder.iterdir())[:8]) or "nothing"
        raise NoRun(f"{folder}: no run, there is no config.toml; there is {there}")
    path = folder / BOOKS_NAME
    record = record_from_json(path.read_text("utf-8")) if path.is_file() else RunRecord(folder.name, {}, {}, {})
    return replace(
        record,
        config=config.read_file(folder / "config.toml")[0].table,
        environment=read_json(folder / "environment.json"),
        metrics=tuple(read_metrics(metrics)) if (metrics := folder / "metrics.jsonl").is_file() else (),
        ledger=_read_ledger(folder / LEDGER_NAME) if (folder / LEDGER_NAME).is_file() else None,
    )


def read_any(path: Path) -> RunRecord | Ledger:
    """A run folder, a report, a run record, or a ledger (.json, .csv).

    Raises:
        NoRun: none of these.
        RecordFormatError, LedgerFormatError: damaged, or of another schema.
    """
    if path.is_dir():
        return read_run(path)
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        raise NoRun(f"{path}: no text, so neither a report (.html) nor a ledger (.json, .csv)") from None
    match path.suffix:
        case ".html":
            return read_page(text)
        case ".csv":
            return books.from_csv(text)
        case ".json" if '"torchledger.run/' in text[:200]:
            return record_from_json(text)
        case ".json" if '"torchledger.count/' in text[:200]:
            return books.from_json(json.dumps(json.loads(text)["answer"]["ledger"]))
        case ".json":
            return books.from_json(text)
    raise NoRun(f"{path}: neither a run folder, a report (.html), nor a ledger (.json, .csv)")


def _read_ledger(path: Path) -> Ledger:
    return books.from_json(path.read_text("utf-8"))


def read_json(path: Path) -> Mapping[str, Any]:
    """The table in a run's file; empty where the file is not there.

    Raises:
        RecordFormatError: damaged.
    """
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise RecordFormatError(f"{path} is damaged: {error}") from error
    return found if isinstance(found, dict) else {}
