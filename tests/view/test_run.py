from torchledger.formula import count, num_parameters, parameters
from torchledger.ledger import Difference, Finding, RunRecord
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, Recipe
from torchledger.view.run import closing_screen, fit_lines, parameter_table, prediction_screen
from torchledger.view.style import Style
from torchledger.view.terminal import draw

TINY = ModelSpec("tiny", 100, 64, 2, 32, AttentionSpec(4), MlpSpec(64))
PLAIN = Style(False, False, True, 200)
FIGURES = {
    "scratch_bytes": 0,
    "parts_bytes": {"parameters": 3 * 2**20, "activations": 2**20},
    "free_bytes": 8 * 2**20,
    "step_flops": 1234567,
    "convention": "contractions only",
    "step_s": 0.25,
    "seconds_by_kind": {"pointwise": 0.05, "matmul": 0.2},
    "tokens_per_s": 64.0,
    "mfu": 0.5,
    "peak_flops_per_s": 1e12,
    "peak_source": "measured here",
    "num_steps": 10,
    "num_tokens": 160,
    "epochs": 0.5,
    "run_flops": 12345670,
    "run_s": 2.5,
    "initial_loss": 4.6052,
}


def test_the_parts_are_all_the_parameters():
    """The rows of the table add up to its total, which is the model's number of parameters."""
    *rows, last = parameter_table(parameters(TINY)).rows
    numbers = [int(row.cells[1].replace(",", "")) for row in rows]
    assert sum(numbers) == int(last.cells[1].replace(",", "")) == num_parameters(TINY)
    assert ("embedding", "3,200") in {row.cells[:2] for row in rows}  # 100 · 32


def test_a_first_loss_that_nobody_knows_is_told_as_unknown():
    """With initial weights there is no ln(vocabulary) to expect."""
    figures = {**FIGURES, "initial_loss": None}
    shown = draw(prediction_screen("mine", figures, count(TINY, Recipe(2, 8)), parameters(TINY), ()), PLAIN)
    assert "unknown: it is that of the initial weights" in shown


def test_a_step_of_which_a_part_has_no_time_is_unknown():
    """Seconds, tokens/s, MFU and the run's length are unknown; the least that a step takes stands beside, with why."""
    unknown = dict.fromkeys(("step_s", "tokens_per_s", "mfu", "run_s"))
    figures = {**FIGURES, **unknown, "least_step_s": 0.25, "untimed_ops": ["matmul"]}
    shown = draw(prediction_screen("mine", figures, count(TINY, Recipe(2, 8)), parameters(TINY), ()), PLAIN)
    lines = {line[:15].strip(): line[15:].strip() for line in shown.splitlines()}
    assert lines["seconds a step"].startswith("unknown, at least 250 ms (no time is known for matmul): matmul 200 ms")
    assert lines["tokens/s"] == "unknown"
    assert lines["MFU"].startswith("unknown of 1 TFLOP/s")
    assert lines["the run"].endswith("unknown")


def test_a_tied_head_is_counted_once():
    """A head that is the embedding has no row."""
    tied = ModelSpec("tied", 100, 64, 2, 32, AttentionSpec(4), MlpSpec(64), tied_embeddings=True)
    assert "head" not in {row.cells[0] for row in parameter_table(parameters(tied)).rows}


def test_the_prediction_tells_everything_that_was_asked_for():
    """Parameters, FLOPs, memory against what is free, seconds with the largest cause first, MFU with its peak."""
    recipe = Recipe(batch_size=2, sequence_length=8)
    shown = draw(prediction_screen("mine", FIGURES, count(TINY, recipe), parameters(TINY), ("this is assumed",)), PLAIN)
    for text in (
        "mine: predicted before it runs",
        "parameters by part",
        "one step by phase",
        "4 MiB of 8 MiB, 50 %",
        "1,234,567 (contractions only)",
        "250 ms: matmul 200 ms, pointwise 50 ms",
        "50 % of 1 TFLOP/s, measured here",
        "10 steps, 160 tokens",
        "4.6052 nats",
        "this is assumed",
    ):
        assert text in shown, text


def test_the_closing_screen_has_table_findings_and_the_last_sample():
    """Only the last of several samples is shown."""
    record = RunRecord(
        "run",
        {},
        {},
        {},
        differences=(Difference("step_flops", "FLOP", 100, 100, 0),),
        samples=("first", "second"),
        findings=(Finding("data", "note", "validation", "below the entropy"),),
    )
    shown = draw(closing_screen(record), PLAIN)
    assert "step_flops" in shown
    assert "note: below the entropy" in shown
    assert "second" in shown
    assert "first" not in shown


def test_fit_is_said_in_one_sentence():
    """Equal to what is free still fits; one byte more does not."""
    assert "fits into" in fit_lines(2**20, 2**20)
    assert "does not fit into" in fit_lines(2**20 + 1, 2**20)
