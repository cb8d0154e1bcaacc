import json
import re
from fractions import Fraction

import pytest

EIGHT = ("plan", "llama-3-8b", "--on", "h100x8", "--zero", "3", "--recompute", "full", "--tokens", "15B")
STAGES = (
    *("plan", "llama-3-8b", "--on", "h100x16", "--tp", "2", "--pp", "4", "--vp", "2", "--zero", "1"),
    *("--sequence-parallel", "--batch", "32", "--tokens", "15B"),
)


def printed(out, title):
    """The amounts of the bars under a title, and the total in the title."""
    block = next(block for block in out.split("\n\n") if block.startswith(title))
    head, *bars = block.splitlines()
    amounts = [re.search(r"([\d,.]+) (?:s|ms|GiB), [\d,.]+ %$", bar)[1] for bar in bars if bar.endswith(" %")]
    total = re.search(r": ([\d,.]+) (?:s|ms|GiB)", head)[1]
    return [Fraction(each.replace(",", "")) for each in amounts], Fraction(total.replace(",", ""))


@pytest.mark.parametrize("question", [EIGHT, STAGES], ids=["one stage", "four stages"])
@pytest.mark.parametrize("title", ["seconds", "memory"])
def test_the_screen_s_parts_add_up_to_its_totals(ask, question, title):
    """Printed seconds by cause add up to the printed step, printed bytes by part to the printed peak."""
    answer = ask(*question)
    assert answer.code == 0
    amounts, total = printed(answer.out, title)
    assert len(amounts) >= 5
    assert sum(amounts) == total


@pytest.mark.parametrize("question", [EIGHT, STAGES], ids=["one stage", "four stages"])
def test_the_json_s_parts_add_up_to_its_totals(ask, question):
    """Every stage's causes add up to the step, its parts to its peak; the fullest stage's peak is the answer's."""
    answer = ask(*question, "--json").json["answer"]
    for stage in answer["stages"]:
        assert sum(stage["causes_s"].values()) == pytest.approx(answer["step_s"], rel=1e-9)
        assert sum(stage["parts_bytes"].values()) == stage["peak_bytes"]
    assert answer["peak_bytes"] == max(stage["peak_bytes"] for stage in answer["stages"])


def test_totals_follow_from_each_other(ask):
    """Tokens a second are tokens of a step over its seconds; MFU is model FLOPs over what the peak could do."""
    document = ask(*EIGHT, "--json").json
    answer, recipe = document["answer"], document["question"]["recipe"]
    tokens = recipe["batch_size"] * recipe["sequence_length"]
    assert answer["tokens_per_s"] == pytest.approx(tokens / answer["step_s"])
    assert answer["mfu"] == pytest.approx(answer["model_flops"] / (answer["step_s"] * 8 * 989.4e12))
    assert answer["chip_hours"] == pytest.approx(answer["days"] * 24 * 8)


def test_money_and_carbon_need_their_flags(ask):
    """Unknown without a price, chip-hours times price with it; carbon is energy times the grid's."""
    bare = ask(*EIGHT, "--json").json["answer"]
    assert bare["money"] is None
    assert bare["carbon_kg"] is None
    told = ask(*EIGHT, "--price", "$2.80", "--carbon", "400", "--json").json["answer"]
    assert told["money"] == pytest.approx(2.8 * told["chip_hours"])
    assert told["carbon_kg"] == pytest.approx(0.4 * told["energy_j"] / 3.6e6)


def test_what_does_not_fit_exits_3_with_what_would(ask):
    """16 bytes times 8 billion parameters on every GPU is 120 GiB: exit 3, the answer, and remedies that fit."""
    question = ("plan", "llama-3-8b", "--on", "h100x8", "--dp", "8", "--stack", "megatron", "--batch", "64")
    answer = ask(*question)
    assert answer.code == 3
    assert "does not fit" in answer.out.splitlines()[0]
    assert "it would fit with one of" in answer.out
    assert "it would fit with" in answer.err
    told = ask(*question, "--json").json["answer"]
    assert told["fits"] is False
    assert told["remedies"]
    assert all(each["peak_bytes"] <= told["capacity_bytes"] for each in told["remedies"])


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        (("llama-3-8b", "--on", "h100x7", "--tp", "8"), ("7 chips",)),
        (("llama-13b", "--on", "h100x16", "--tp", "16"), ("40 attention heads", "8, 10 and 20")),
        (("llama-3-8b", "--on", "h1oox8", "--tp", "2"), ("no chip is named",)),
        (("lama-3-8b", "--on", "h1oox8", "--tp", "two"), ("lama-3-8b", "h1oo", "--tp")),
        (("llama-3-8b", "--on", "h100x8", "--tp", "2", "--tokens", "-5T"), ("-5T",)),
        (("llama-3-8b", "--tp", "2"), ("which chips",)),
        (("llama-3-8b", "--on", "h100x8", "--stack", "megatrn", "--tp", "2"), ("megatron",)),
        (("--tp", "8", "--on", "h100x8", "--params", "8B"), ("--tp", "MODEL")),
    ],
)
def test_a_wrong_question_has_reasons_and_remedies(ask, words, messages):
    """Exit code 2, every mistake named, no traceback."""
    answer = ask("plan", *words)
    assert answer.code == 2
    for message in messages:
        assert message in answer.err
    assert "Traceback" not in answer.err


def test_the_time_line_is_a_trace_of_every_stage(ask, tmp_path):
    """`--timeline` writes one process a stage; the last event ends with the step."""
    path = tmp_path / "step.json"
    step_s = ask(*STAGES, "--timeline", str(path), "--json").json["answer"]["step_s"]
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    assert {event["pid"] for event in complete} == {0, 1, 2, 3}
    assert max(event["ts"] + event["dur"] for event in complete) <= step_s * 1e6 * (1 + 1e-6)


def test_a_step_of_too_many_passes_has_no_time_line(ask, tmp_path):
    """A step of 400,000 micro-batches is planned; its time line is refused, and no empty file is written."""
    path = tmp_path / "step.json"
    found = ask("plan", "gpt2", "--on", "h100x2", "--dp", "2", "--batch", "800000", "--timeline", path)
    assert found.code == 2
    assert "fits" in found.out.splitlines()[0]
    assert "--timeline" in found.err
    assert not path.exists()


def test_the_report_is_one_file_with_the_answer_inside(ask, tmp_path):
    """`--report` writes HTML that holds what `--json` prints."""
    path = tmp_path / "plan.html"
    answer = ask(*EIGHT, "--report", str(path), "--json")
    inside = json.loads(re.search(r'id="torchledger-plan">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)[1])
    assert inside["answer"]["step_s"] == answer.json["answer"]["step_s"]
    assert f"written: {path}" in answer.err


def test_the_launch_flags_say_the_layout(ask):
    """`--launch megatron` prints the command, in the order and the sizes of the plan."""
    out = ask(*STAGES, "--launch", "megatron").out
    for flag in ("--tensor-model-parallel-size 2", "--pipeline-model-parallel-size 4", "--sequence-parallel"):
        assert flag in out


def test_a_file_says_the_whole_question(ask, tmp_path):
    """A TOML file with four tables is the same question as the flags."""
    path = tmp_path / "plan.toml"
    path.write_text(
        """model = "llama-3-8b"
[recipe]
batch_size = 32
num_tokens = "15B"
[strategy]
stack = "megatron"
tensor_parallel = 2
pipeline_parallel = 4
virtual_stages = 2
schedule = "interleaved"
shard_level = 1
sequence_parallel = true
micro_batch_size = 1
[cluster]
on = "h100x16"
""",
        encoding="utf-8",
    )
    by_file = ask("plan", "--config", str(path), "--json").json
    by_flags = ask(*STAGES, "--json").json
    assert by_file["answer"] == by_flags["answer"]
    assert by_file["question"] == by_flags["question"]


def test_the_json_has_the_usual_four_parts(ask):
    """`{schema, question, answer, assumptions}`, what was filled in among the assumptions."""
    document = ask(*EIGHT, "--json").json
    assert list(document) == ["schema", "question", "answer", "assumptions"]
    assert document["schema"] == "torchledger.plan/1"
    assert any("--batch says otherwise" in each for each in document["assumptions"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            (),
            "12 ranks do not fill hosts of 8 chips; say how many chips a host has with --island 2, 3, 4 or 6, or take",
        ),
        (("--island", "5"), "hosts of 5 chips, as many as --island 5 gives an island; say how many"),
    ],
)
def test_a_launch_that_hosts_do_not_fill_is_refused_by_the_option_that_helps(ask, words, says):
    """12 ranks are no multiple of 8: where a command was asked for, the refusal names `--island`, exit code 2."""
    asked = ask("plan", "gpt2", "--on", "h100x12", "--batch", "48", "--dp", "12", "--launch", "torchtitan", *words)
    assert asked.code == 2
    assert "--launch: 12 ranks do not fill hosts" in asked.err
    assert says in asked.err


def test_where_no_host_has_so_many_chips_the_island_is_not_the_remedy(ask):
    """13 is a prime: only 8 or 16 chips fill hosts, and an island of 9 is no host."""
    told = ask(
        "plan", "gpt2", "--on", "h100x13", "--batch", "52", "--dp", "13", "--launch", "torchtitan", "--island", "9"
    )
    assert told.code == 2
    assert "hosts of 8 chips, and --island 9 is more than any host has; take 8 or 16 chips" in told.err
