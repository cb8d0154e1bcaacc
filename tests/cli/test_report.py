import pytest

from torchledger.ledger import RunRecord
from torchledger.view.page import page, read_page


@pytest.fixture
def folder(tmp_path):
    """A run that has begun."""
    path = tmp_path / "run"
    path.mkdir()
    (path / "config.toml").write_text('name = "toy"\n')
    (path / "metrics.jsonl").write_text('{"kind": "step", "step": 0, "loss": 4.1, "tokens_per_s": 10.0}\n')
    return path


def test_the_report_stands_in_the_folder(ask, folder):
    """Without a name the report is written into the run, and its path is the answer."""
    answer = ask("report", folder)
    assert answer.code == 0
    assert answer.out.strip() == str(folder / "report.html")
    assert read_page((folder / "report.html").read_text()).metrics[0]["loss"] == 4.1


def test_another_place(ask, folder, tmp_path):
    """`-o` chooses the file, and a dash is stdout."""
    assert ask("report", folder, "-o", tmp_path / "mine.html").code == 0
    assert (tmp_path / "mine.html").is_file()
    assert ask("report", folder, "-o", "-").out.startswith("<!DOCTYPE html>")


def test_stdout_takes_one_answer(ask, folder, tmp_path):
    """The page and the JSON cannot both be it: the pair is refused, and a file for the page is not."""
    answer = ask("report", folder, "-o", "-", "--json")
    assert answer.code == 2
    assert answer.out == ""
    assert "-o - writes the page to stdout, where --json writes its answer" in answer.err
    assert ask("report", folder, "-o", tmp_path / "mine.html", "--json").json["answer"]["num_bytes"] > 0


def test_a_report_is_redrawn_from_a_report(ask, tmp_path):
    """A report has its data inside, so it can be drawn again."""
    path = tmp_path / "old.html"
    path.write_text(page(RunRecord("toy", {}, {}, {"step_s": 1.0})))
    assert ask("report", path, "-o", tmp_path / "new.html").code == 0
    assert read_page((tmp_path / "new.html").read_text()).prediction == {"step_s": 1.0}


def test_a_folder_without_a_run_is_refused(ask, tmp_path):
    """A wrong folder is exit code 2 and says what is missing."""
    answer = ask("report", tmp_path)
    assert answer.code == 2
    assert "no config.toml" in answer.err


def test_a_place_that_cannot_be_written(ask, folder):
    """A folder that is not there is a failure with a message, not a traceback."""
    answer = ask("report", folder, "-o", folder / "none" / "report.html")
    assert answer.code == 1
    assert "No such file" in answer.err
