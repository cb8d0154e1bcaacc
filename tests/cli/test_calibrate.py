import json

import pytest

HEADER = "model,stack,gpu,n_gpus,precision,seq,global_batch,micro_batch,fsdp_zero,recompute,step_time_s"
ROW = "llama-3-8b,fsdp2,{gpu},{n},bf16,8192,{batch},1,ZeRO-3,full,{seconds}"


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table of measured steps in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def write(*rows):
        lines = [HEADER, *(ROW.format(**{"gpu": "h100", "n": 8, "batch": 64, **row}) for row in rows)]
        (tmp_path / "measured.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")

    return write


def plan(ask, *more):
    words = ("--zero", "3", "--recompute", "full", "--batch", "64", "--json")
    return ask("plan", "llama-3-8b", "--on", "h100x8", *words, *more).json["answer"]


def test_a_slow_cluster_is_predicted_slower_afterwards(ask, table):
    """Six rows 1.3 times as long as predicted: afterwards predictions are within 6 %, and surer."""
    uncalibrated = plan(ask)
    before = uncalibrated["step_s"]
    table(*({"seconds": 1.3 * n * before, "batch": 64 * n} for n in (1, 2, 3, 4, 6, 8)))
    assert ask("calibrate", "--rows", "measured.csv").code == 0
    after = plan(ask, "--constants", "constants.toml")
    assert after["step_s"] == pytest.approx(1.3 * before, rel=0.06)
    low, high = after["step_interval_s"]
    assert low < after["step_s"] < high
    widest = uncalibrated["step_interval_s"]
    assert high / low < widest[1] / widest[0]


def test_the_answer_tells_errors_and_intervals(ask, table):
    """Errors before and after, constants with their ranges, every row with its own interval, and the file."""
    before = plan(ask)["step_s"]
    table({"seconds": 1.2 * before}, {"seconds": 2.4 * before, "batch": 128})
    answer = ask("calibrate", "--rows", "measured.csv", "-o", "mine.toml", "--json").json["answer"]
    assert answer["num_rows"] == 2
    assert answer["mean_absolute_error_after"] < answer["mean_absolute_error_before"]
    assert answer["path"] == "mine.toml"
    assert all(low < high for low, high in answer["intervals"].values())
    for row in answer["rows"]:
        low, high = row["interval_s"]
        assert row["is_inside"] == (low <= row["measured_s"] <= high)


def test_each_error_is_the_mean_of_its_column(ask, table):
    """Before, by the constants alone, and after: each mean is that of the rows' own seconds of that name."""
    before = plan(ask)["step_s"]
    table(*({"seconds": (1.1 + n / 50) * n * before, "batch": 64 * n} for n in (1, 2, 3, 4, 6)))
    answer = ask("calibrate", "--rows", "measured.csv", "--json").json["answer"]
    rows = answer["rows"]
    for name in ("before", "constants", "after"):
        errors = [abs(row[f"{name}_s"] / row["measured_s"] - 1) for row in rows]
        assert answer[f"mean_absolute_error_{name}"] == pytest.approx(sum(errors) / 5)
    assert answer["mean_absolute_error_after"] < answer["mean_absolute_error_constants"]


@pytest.mark.parametrize(
    ("row", "changed", "says"),
    [
        ("fsdp2,v100,8,fp16,8192,64,1,ZeRO-3", ("fp16", "bf16"), "precision bf16 needs bf16, which V100"),
        (
            "megatron,h100,8,bf16,8192,64,1,ZeRO-1",
            ("ZeRO-1", "ZeRO-3"),
            "megatron has no shard_level 3; it has 0, 1; stack megatron-fsdp has 3",
        ),
    ],
)
def test_a_row_that_plan_refuses_teaches_nothing(ask, tmp_path, row, changed, says):
    """What `plan` calls impossible was never measured: its line and the rule, exit code 2, and nothing is saved."""
    table, saved = tmp_path / "measured.csv", tmp_path / "constants.toml"
    fine = f"llama-3-8b,{row},full,9"
    table.write_text("\n".join((HEADER, fine, fine.replace(*changed))) + "\n", encoding="utf-8")
    told = ask("calibrate", "--rows", table, "-o", saved)
    assert told.code == 2
    assert f"measured.csv:3: {says}" in told.err
    assert "measured.csv:2" not in told.err
    assert not saved.exists()
    assert ask("calibrate", "--rows", table, "--suggest", "1").code == 2


def test_a_row_that_cannot_be_is_told_by_line(ask, table):
    """Milliseconds in a column of seconds: line 3 is named on the screen and in the JSON; a good row is not."""
    before = plan(ask)["step_s"]
    table({"seconds": before}, {"seconds": before / 1000})
    screen = ask("calibrate", "--rows", "measured.csv")
    assert screen.code == 0
    assert "1 of 2 rows are suspicious" in screen.out
    assert "measured.csv:3:" in screen.out
    assert "measured.csv:2:" not in screen.out
    answer = ask("calibrate", "--rows", "measured.csv", "--json")
    (told,) = answer.json["answer"]["suspicious"]
    assert "1,000 times less" in told
    assert told in answer.err


def test_under_strict_such_a_row_is_refused_and_nothing_is_saved(ask, table, tmp_path):
    """Exit 2 with the line, no file; rows that agree are fitted as without --strict."""
    before = plan(ask)["step_s"]
    table({"seconds": before * 1e30})
    answer = ask("calibrate", "--rows", "measured.csv", "--strict")
    assert answer.code == 2
    assert "measured.csv:2" in answer.err
    assert not (tmp_path / "constants.toml").exists()
    table({"seconds": before})
    assert ask("calibrate", "--rows", "measured.csv", "--strict").code == 0
    assert (tmp_path / "constants.toml").exists()


def test_more_rows_than_enough_are_all_fitted_and_told(ask, table):
    """21 rows: all count, and the answer says so; 20 are not worth a word."""
    before = plan(ask)["step_s"]
    table(*({"seconds": before} for _ in range(21)))
    answer = ask("calibrate", "--rows", "measured.csv", "--json").json
    assert answer["answer"]["num_rows"] == 21
    assert any("all 21 rows are fitted" in each for each in answer["assumptions"])
    table(*({"seconds": before} for _ in range(20)))
    answer = ask("calibrate", "--rows", "measured.csv", "--json").json
    assert not any("rows are fitted" in each for each in answer["assumptions"])


def test_rows_of_two_chips_are_refused(ask, table):
    """Constants are of one chip; the message names both."""
    table({"seconds": 10.0}, {"seconds": 30.0, "gpu": "a100-80gb"})
    answer = ask("calibrate", "--rows", "measured.csv")
    assert answer.code == 2
    assert "2 chips" in answer.err


def test_a_table_without_seconds_is_refused(ask, table, tmp_path):
    """A row that tells only memory cannot be fitted."""
    text = f"{HEADER},memory_gib\n{ROW.format(gpu='h100', n=8, batch=64, seconds='')},40\n"
    (tmp_path / "measured.csv").write_text(text, encoding="utf-8")
    answer = ask("calibrate", "--rows", "measured.csv")
    assert answer.code == 2
    assert "no row has seconds" in answer.err


def test_every_mistake_of_a_table_is_told(ask, table, tmp_path):
    """A wrong chip in one row and a missing batch in the next: both lines are named, exit code 2."""
    rows = (ROW.format(gpu="h1oo", n=8, batch=64, seconds=1), ROW.format(gpu="h100", n=8, batch="", seconds=1))
    (tmp_path / "measured.csv").write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    answer = ask("calibrate", "--rows", "measured.csv")
    assert answer.code == 2
    assert "measured.csv:2" in answer.err
    assert "measured.csv:3" in answer.err


def test_constants_of_another_chip_are_refused(ask, table):
    """What was fitted to an H100 is refused for an A100."""
    table({"seconds": 10.0})
    assert ask("calibrate", "--rows", "measured.csv").code == 0
    answer = ask("plan", "llama-3-8b", "--on", "a100-80gbx8", "--zero", "3", "--constants", "constants.toml")
    assert answer.code == 2
    assert "calibrate with rows of that chip" in answer.err


def test_the_saved_file_is_what_the_answer_says(ask, table, tmp_path):
    """The constants of the JSON answer stand in the file."""
    import tomllib

    table({"seconds": 12.0})
    printed = ask("calibrate", "--rows", "measured.csv", "--json").out
    saved = tomllib.loads((tmp_path / "constants.toml").read_text(encoding="utf-8"))
    assert saved["h100-sxm"]["matmul_share"] == json.loads(printed)["answer"]["constants"]["matmul_share"]


def test_the_help_names_every_column_that_a_table_must_have(ask, tmp_path):
    """Each column that the help says a table has at the least is missed where it is left out."""
    least = ask("calibrate", "--help").out.partition("at least ")[2].partition(" or none")[0]
    cells = dict(zip(HEADER.split(","), ROW.format(gpu="h100", n=8, batch=64, seconds=9).split(","), strict=True))
    path = tmp_path / "measured.csv"
    for left_out in cells.keys() - {"fsdp_zero"}:
        assert left_out in least
        kept = {column: cell for column, cell in cells.items() if column != left_out}
        path.write_text("\n".join((",".join(kept), ",".join(kept.values()))) + "\n", encoding="utf-8")
        assert ask("calibrate", "--rows", path, "-o", tmp_path / "c.toml").code == 2


def test_an_option_that_suggesting_does_not_read_is_refused(ask, table):
    """--suggest fits nothing, so there is no row that --strict could refuse."""
    table({"seconds": 20})
    refused = ask("calibrate", "--rows", "measured.csv", "--suggest", "1", "--strict")
    assert refused.code == 2
    assert "--strict" in refused.err


def test_seconds_that_no_cluster_takes_are_refused(ask, table, tmp_path):
    """10^300 seconds are beyond what numbers can be fitted to: exit 2, the unit is named, nothing is saved."""
    table({"seconds": 1e300})
    refused = ask("calibrate", "--rows", "measured.csv")
    assert refused.code == 2
    assert "look at the unit" in refused.err
    assert not (tmp_path / "constants.toml").exists()


def test_the_runs_to_measure_are_told_before_any_is_measured(ask, tmp_path, monkeypatch):
    """Four planned runs without seconds, two asked for: two different ones are named, and nothing is saved."""
    monkeypatch.chdir(tmp_path)
    rows = [ROW.format(gpu="h100", n=n, batch=64 * n // 8, seconds="") for n in (8, 16, 64, 512)]
    (tmp_path / "planned.csv").write_text("\n".join((HEADER, *rows)) + "\n", encoding="utf-8")
    answer = ask("calibrate", "--rows", "planned.csv", "--suggest", "2", "--json").json["answer"]
    assert len({row["place"] for row in answer["rows"]}) == 2
    assert "2 of 4 runs" in ask("calibrate", "--rows", "planned.csv", "--suggest", "2").out
    assert not (tmp_path / "constants.toml").exists()


def test_a_plan_near_a_measured_row_expects_what_that_row_left_over(ask, table):
    """One layout measured twice as 1.3 times its prediction: the plan of it expects more than its constants say."""
    before = plan(ask)["step_s"]
    table({"seconds": 1.3 * before}, {"seconds": 1.3 * before})
    ask("calibrate", "--rows", "measured.csv")
    after = plan(ask, "--constants", "constants.toml")
    assert after["step_s"] < after["expected_step_s"] < 1.35 * before


def test_where_the_default_constants_are_kept_nothing_else_is_expected(ask, table):
    """Five rows within 1 % of what is predicted, longer and shorter in turn: a plan has its interval, no other step."""
    seconds = {n: plan(ask, "--batch", str(64 * n))["step_s"] for n in (1, 2, 3, 4, 6)}
    signs = (1, -1, 1, -1, 1)
    table(
        *(
            {"seconds": s * (1 + sign / 100), "batch": 64 * n}
            for (n, s), sign in zip(seconds.items(), signs, strict=True)
        )
    )
    assert "the default constants are kept" in ask("calibrate", "--rows", "measured.csv").out
    after = plan(ask, "--constants", "constants.toml")
    assert after["step_s"] == seconds[1]
    assert after["expected_step_s"] is None
    assert after["step_interval_s"][0] < seconds[1] < after["step_interval_s"][1]


def test_a_place_that_nothing_can_be_saved_in_is_refused_before_fitting(ask, table, monkeypatch):
    """A missing folder is exit code 2 before any row is read."""
    table({"seconds": 1.0})
    monkeypatch.setattr("torchledger.planner.measured.read_rows", lambda *_: pytest.fail("read before refusing"))
    answer = ask("calibrate", "--rows", "measured.csv", "-o", "nowhere/constants.toml")
    assert answer.code == 2
    assert "there is no folder nowhere" in answer.err
