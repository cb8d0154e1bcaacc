import json
import math

import pytest

from torchledger.cli.runs import NoRun, read_any, read_run, write_books
from torchledger.config import ConfigError
from torchledger.ledger import Difference, Ledger, LedgerFormatError, Line, RunRecord, Work, to_csv, to_json
from torchledger.trainer.errors import RunFolderError
from torchledger.view.page import page
from torchledger.view.record import RecordFormatError

LEDGER = Ledger((Line("mlp.up", "matmul", Work.of_flops(12), "matmul"),))


@pytest.fixture
def run_folder(tmp_path):
    """A closed run as the trainer and the books leave it."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.toml").write_text('name = "toy"\n')
    (folder / "environment.json").write_text('{"versions": {"torch": "2.13"}}')
    (folder / "metrics.jsonl").write_text('{"kind": "step", "step": 0, "loss": 4.1}\n{"kind": "step", "st')
    differences = (Difference("step_flops", "FLOP", 12, 12, 0), Difference("step_s", "s", 1.0, 2.0, 0.25))
    prediction = {"step_flops": 12, "initial_loss": math.log(64)}
    write_books(folder, RunRecord("toy", {}, {}, prediction, differences=differences, ledger=LEDGER, samples=("def",)))
    return folder


def test_a_folder_is_one_record(run_folder):
    """Configuration, environment, metrics, ledger and books come together; a row cut in two is left out."""
    record = read_run(run_folder)
    assert record.name == "toy"
    assert record.config == {"name": "toy"}
    assert record.environment["versions"]["torch"] == "2.13"
    assert [row["loss"] for row in record.metrics] == [4.1]
    assert record.ledger == LEDGER
    assert [difference.within for difference in record.differences] == [True, False]
    assert record.samples == ("def",)


def test_a_run_may_be_looked_at_while_it_trains(run_folder):
    """Before the books are closed there are metrics and no differences."""
    (run_folder / "books.json").unlink()
    (run_folder / "ledger.json").unlink()
    record = read_run(run_folder)
    assert (record.differences, record.ledger, len(record.metrics)) == ((), None, 1)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ledger.json", to_json(LEDGER)),
        ("ledger.csv", to_csv(LEDGER)),
        (
            "count.json",
            json.dumps({"schema": "torchledger.count/1", "answer": {"ledger": json.loads(to_json(LEDGER))}}),
        ),
    ],
)
def test_a_ledger_is_read_from_any_form(tmp_path, name, text):
    """JSON, CSV, and the answer of `count --json`."""
    path = tmp_path / name
    path.write_text(text)
    assert read_any(path) == LEDGER


def test_a_report_is_read_back(run_folder, tmp_path):
    """The report has the run inside."""
    path = tmp_path / "report.html"
    path.write_text(page(read_run(run_folder)))
    assert read_any(path).differences == read_run(run_folder).differences


def test_an_empty_folder_is_no_run(tmp_path):
    """A folder without a run says what is in it."""
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(NoRun, match=r"there is no config.toml; there is notes.txt"):
        read_any(tmp_path)


def test_another_file_is_no_run(tmp_path):
    """A file that is none of the known forms says which there are."""
    path = tmp_path / "a.txt"
    path.write_text("")
    with pytest.raises(NoRun, match="report"):
        read_any(path)


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("books.json", "{", RecordFormatError),
        ("ledger.json", "{", LedgerFormatError),
        ("environment.json", "{", RecordFormatError),
        ("metrics.jsonl", '{"a"\n{"kind": "step", "step": 1}\n', RunFolderError),
    ],
)
def test_a_damaged_file_is_named(run_folder, name, text, error):
    """Damage is an error that says so, never an empty record."""
    (run_folder / name).write_text(text)
    with pytest.raises(error):
        read_run(run_folder)


def test_a_file_that_is_no_text_is_no_run(tmp_path):
    """A token file or a checkpoint is called what it is not, instead of a decoding error."""
    path = tmp_path / "train.tokens"
    path.write_bytes(b"\x9f\x00")
    with pytest.raises(NoRun, match="no text"):
        read_any(path)


def test_a_damaged_configuration_is_told_at_its_line(run_folder):
    """A config.toml that is not TOML is a mistake of the file, with its line."""
    (run_folder / "config.toml").write_text("garbage\n")
    with pytest.raises(ConfigError, match=r"config\.toml:1: not valid TOML"):
        read_run(run_folder)
