import pytest

from torchledger.cli.runs import write_books
from torchledger.ledger import Convention, Difference, Ledger, Line, RunRecord, Work, to_json


def closed_run(folder, *differences):
    folder.mkdir()
    (folder / "config.toml").write_text('name = "toy"\n')
    write_books(folder, RunRecord("toy", {}, {}, {}, differences=differences))
    return folder


def ledger_file(path, flops, *, convention=None):
    line = Line("mlp.up", "matmul", Work.of_flops(flops, bytes_kept=64), "matmul")
    path.write_text(to_json(Ledger((line,), convention or Convention())))
    return path


def test_a_run_within_its_tolerances_is_fine(ask, tmp_path):
    """All within: exit code 0, and the closing table."""
    answer = ask("compare", closed_run(tmp_path / "run", Difference("step_s", "s", 1.0, 1.1, 0.25)))
    assert answer.code == 0
    assert "step_s" in answer.out


def test_beyond_tolerance_is_exit_code_4(ask, tmp_path):
    """One quantity over its tolerance: exit code 4, and it is named on stderr."""
    answer = ask("compare", closed_run(tmp_path / "run", Difference("step_s", "s", 1.0, 2.0, 0.25)))
    assert answer.code == 4
    assert "over" in answer.out
    assert "beyond tolerance: step_s" in answer.err


def test_a_report_stands_for_its_run(ask, tmp_path):
    """The report alone gives the same answer."""
    folder = closed_run(tmp_path / "run", Difference("step_s", "s", 1.0, 2.0, 0.25))
    assert ask("report", folder).code == 0
    assert ask("compare", folder / "report.html").code == 4


def test_equal_ledgers_agree(ask, tmp_path):
    """The same FLOPs on both sides: exit code 0."""
    answer = ask("compare", ledger_file(tmp_path / "a.json", 12), ledger_file(tmp_path / "b.json", 12))
    assert answer.code == 0
    assert "no account is apart" in answer.out


def test_a_difference_is_found_and_placed(ask, tmp_path):
    """12 against 16 FLOPs: exit code 4, and the account is named with its difference."""
    answer = ask("compare", ledger_file(tmp_path / "a.json", 12), ledger_file(tmp_path / "b.json", 16))
    assert answer.code == 4
    row = next(line for line in answer.out.splitlines() if line.startswith("mlp.up"))
    assert row.endswith("-4 FLOP")


def test_a_tolerance_lets_it_pass(ask, tmp_path):
    """(16 - 12) / 16 is 25 %."""
    files = (ledger_file(tmp_path / "a.json", 12), ledger_file(tmp_path / "b.json", 16))
    assert ask("compare", *files, "--tolerance", "25%").code == 0
    assert ask("compare", *files, "--tolerance", "24%").code == 4


def test_bytes_are_judged_on_demand(ask, tmp_path):
    """Bytes are told without a target, because kernels are cut differently, until one is given."""
    a, b = ledger_file(tmp_path / "a.json", 12), ledger_file(tmp_path / "b.json", 12)
    b.write_text(b.read_text().replace('"bytes_kept": 64', '"bytes_kept": 80'))
    assert ask("compare", a, b).code == 0
    assert ask("compare", a, b, "--bytes-tolerance", "0").code == 4


def test_two_conventions_are_not_subtracted(ask, tmp_path):
    """Ledgers under different conventions are refused, not compared."""
    other = ledger_file(tmp_path / "b.json", 12, convention=Convention(operations="all"))
    answer = ask("compare", ledger_file(tmp_path / "a.json", 12), other)
    assert answer.code == 2
    assert "different conventions" in answer.err


@pytest.mark.parametrize("kind", ["ledger", "open run", "nothing"])
def test_what_cannot_be_compared_says_why(ask, tmp_path, kind):
    """One ledger alone, a run that is not closed, a path that is not there."""
    path = {
        "ledger": lambda: ledger_file(tmp_path / "a.json", 12),
        "open run": lambda: closed_run(tmp_path / "run"),
        "nothing": lambda: tmp_path / "missing",
    }[kind]()
    answer = ask("compare", path)
    assert answer.code == 2
    assert {"ledger": "second one", "open run": "not closed", "nothing": "does not exist"}[kind] in answer.err


def test_json_has_every_difference(ask, tmp_path):
    """Figures, verdicts and their number, for a machine to read."""
    folder = closed_run(tmp_path / "run", Difference("step_s", "s", 1.0, 2.0, 0.25))
    answer = ask("compare", folder, "--json")
    assert answer.code == 4
    (row,) = answer.json["answer"]["differences"]
    assert (row["difference"], row["relative"], row["within"]) == (1.0, 0.5, False)
