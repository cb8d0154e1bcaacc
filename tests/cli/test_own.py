"""`count file.py:build --trace`: the user's own model or step, and every way in which that can go wrong."""

import sys
import textwrap

import pytest

pytest.importorskip("torch")

IN, OUT, ROWS = 8, 4, 16
FLOPS = 2 * 2 * ROWS * IN * OUT  # forward and weight gradient

FILE = f"""
import torch
from torch import nn
from neighbour import mean

IN, OUT, ROWS = {IN}, {OUT}, {ROWS}
NUMBER = 3

def model():
    return nn.Linear(IN, OUT)

def pair():
    net = nn.Sequential(nn.Linear(IN, OUT), nn.Flatten())
    net.forward = lambda x, inner=net.forward: inner(x).square().mean()
    return net, torch.randn(ROWS, IN)

def build():
    return {{"model": nn.Linear(IN, OUT), "batch": torch.randn(ROWS, IN), "loss": mean,
            "optimizer": torch.optim.AdamW, "gradient_clip": 1.0}}

def step():
    net = nn.Linear(IN, OUT)
    optimizer, x = torch.optim.SGD(net.parameters(), lr=0.1), torch.randn(ROWS, IN)
    def run():
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return run

def number():
    return 3

def misspelt():
    return {{"modle": nn.Linear(IN, OUT)}}

def raises():
    raise KeyError("weights")

def prints():
    print("not the answer")
    return pair()

def leaves():
    raise SystemExit(7)

def empty():
    return lambda: None

class Raises(nn.Linear):
    def forward(self, x):
        raise ZeroDivisionError("in the forward")

def forward_raises():
    return {{"model": nn.Sequential(Raises(IN, OUT)), "batch": torch.randn(ROWS, IN), "loss": mean}}

class Item(nn.Linear):
    def forward(self, x):
        return super().forward(x * x.max().item())

def item():
    return {{"model": nn.Sequential(Item(IN, OUT)), "batch": torch.randn(ROWS, IN), "loss": mean}}

@torch.library.custom_op("torchledger_cli_tests::odd", mutates_args=())
def odd(x: torch.Tensor) -> torch.Tensor:
    return x.clone()

@odd.register_fake
def _(x):
    return torch.empty_like(x)

class Odd(nn.Linear):
    def forward(self, x):
        return super().forward(odd(x))

def unknown():
    return {{"model": Odd(IN, OUT), "batch": torch.randn(ROWS, IN), "loss": mean}}

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(IN, 4 * IN), nn.Linear(4 * IN, IN)
    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))

def deep():
    return {{"model": nn.Sequential(*[Block() for _ in range(4)]), "batch": torch.randn(ROWS, IN), "loss": mean,
            "optimizer": torch.optim.AdamW}}
"""


@pytest.fixture
def mine(tmp_path):
    """A user's file, which imports another one beside it."""
    (tmp_path / "neighbour.py").write_text("def mean(output, batch):\n    return output.square().mean()\n")
    path = tmp_path / "mine.py"
    path.write_text(textwrap.dedent(FILE))
    return path


@pytest.mark.parametrize("name", ["build", "step", "pair", ""])
def test_a_dict_a_step_and_a_pair_are_counted(ask, mine, name):
    """The same layer each way; `build` is looked for where no name is given."""
    answer = ask("count", f"{mine}:{name}" if name else mine, "--trace", "--json")
    assert answer.code == 0, answer.err
    figures = answer.json["answer"]
    assert figures["total_flops"] == figures["model_flops"] == FLOPS
    assert figures["num_parameters"] == IN * OUT + OUT
    assert figures["is_complete"]
    assert figures["peak_bytes"] == sum(figures["parts_bytes"].values())
    assert figures["coverage"]["share"] == 1


def test_the_screen_tells_the_three_numbers_and_who_is_alive(ask, mine):
    shown = ask("count", f"{mine}:build", "--trace", "--chip", "h100").out
    for words in ("FLOPs of a step", "weight gradient", "alive at the peak", "roofline on H100 SXM", "coverage"):
        assert words in shown
    assert "AdamW, clipped at 1" in shown


def test_lines_of_source(ask, mine):
    shown = ask("count", f"{mine}:step", "--trace", "--by", "source").out
    assert "mine.py:" in shown


def test_another_batch_and_length(ask, mine):
    """`--batch` resizes the batch's first dimension."""
    answer = ask("count", f"{mine}:build", "--trace", "--batch", 2 * ROWS, "--json").json["answer"]
    assert answer["total_flops"] == 2 * FLOPS


def test_strict_fails_where_an_operation_has_no_rule(ask, mine):
    """Named, counted, with the most it could cost; without --strict the answer says incomplete and exits 0."""
    relaxed = ask("count", f"{mine}:unknown", "--trace")
    assert relaxed.code == 0
    assert "no rule for torchledger_cli_tests.odd.default" in relaxed.out
    strict = ask("count", f"{mine}:unknown", "--trace", "--strict")
    assert strict.code == 1
    assert "incomplete: no rule for torchledger_cli_tests.odd.default (1 times" in strict.err
    assert ask("count", f"{mine}:build", "--trace", "--strict").code == 0


def test_what_ifs_side_by_side(ask, mine):
    words = ("--what-if", "checkpoint=full", "--what-if", "optimizer=sgd,micro-batch=8", "--what-if", "checkpoint=2")
    rows = ask("count", f"{mine}:deep", "--trace", *words, "--json").json["answer"]["what_if"]
    assert [row["name"] for row in rows] == ["as it is", *words[1::2]]
    forward = 4 * 2 * (2 * ROWS * IN * 4 * IN)
    # the first block's input needs no gradient
    plain = 3 * forward - 2 * ROWS * IN * 4 * IN
    assert [row["model_flops"] for row in rows] == [plain, plain, plain // 2, plain]
    assert rows[1]["executed_flops"] == plain + forward // 2  # up again, not down: early stop
    assert rows[3]["executed_flops"] == plain + forward // 4
    shown = ask("count", f"{mine}:deep", "--trace", *words).out
    assert "what if" in shown
    assert "checkpoint=full" in shown


def test_the_largest_that_fits(ask, mine):
    """In JSON and in words; nothing fits is exit code 3 with the least."""
    found = ask("count", f"{mine}:deep", "--trace", "--max-batch", "100kB", "--json").json["answer"]["max_batch"]
    assert found["need_bytes"] <= 100_000
    assert found["size"] > ROWS
    assert "rows fit into" in ask("count", f"{mine}:deep", "--trace", "--max-batch", "100kB").out
    nothing = ask("count", f"{mine}:deep", "--trace", "--max-batch", "1kB")
    assert nothing.code == 3
    assert "no batch fits into 1,000 bytes: the least takes" in nothing.err


def test_a_search_tells_every_trace_on_a_terminal(ask, mine, monkeypatch):
    """One line on stderr for each size tried, where a person looks; none in a log, in JSON or under --quiet."""
    words = ("count", f"{mine}:deep", "--trace", "--max-batch", "100kB")
    found = ask(*words, "--json").json["answer"]["max_batch"]
    assert "tried" not in ask(*words).err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    told = [line for line in ask(*words).err.splitlines() if line.startswith("tried ")]
    assert len(told) == found["num_traces"]
    assert told[0].startswith("tried 1 rows: ")
    assert told[0].endswith(", fits")
    assert any(line.endswith(", does not fit") for line in told)
    assert "tried" not in ask(*words, "--json").err
    assert "tried" not in ask("--quiet", *words).err


@pytest.mark.parametrize(
    ("name", "words", "code", "said"),
    [
        ("none.py:build", (), 2, "no file"),
        (":biuld", (), 2, "has no biuld; did you mean"),
        (":NUMBER", (), 2, "is int, not a function"),
        (":number", (), 2, "the function returns int. Return a model"),
        (":misspelt", (), 2, "unknown keys modle. Its keys are model, batch"),
        (":model", (), 2, "makes a model and no batch: return (model, batch)"),
        (":raises", (), 1, "raised KeyError: 'weights' (while building, outside every module, at "),
        (":leaves", (), 1, "ended the program with code 7 (at mine.py:"),
        (":empty", (), 2, "makes a step that runs nothing"),
        (
            ":forward_raises",
            (),
            1,
            "raised ZeroDivisionError: in the forward (while tracing a step, in module `0`, at ",
        ),
        (":item", (), 2, "needs the values of a tensor in module `0` at "),
        (":step", ("--what-if", "checkpoint=full"), 2, "--what-if needs a model with its batch"),
        (":step", ("--batch", "3"), 2, "a step has its own batch"),
        (":build", ("--set", "model.num_layers=2"), 2, "--set is for presets"),
        (":build", ("--by", "parameter"), 2, "--by parameter is by formula"),
        (":build", ("--what-if", "faster"), 2, "write name=value"),
        (":build", ("--what-if", "speed=2"), 2, "there is no what-if 'speed'"),
        (":build", ("--precision", "fp16"), 2, "fp16 is no precision to train in on a CPU"),
        (":build", ("--chip", "h1000"), 2, "h1000"),
        (":build", ("--what-if", "micro_batch=-3"), 2, "micro_batch is -3. It is 1, 2"),
        (":build", ("--what-if", "set_to_none=maybe"), 2, "set_to_none is 'maybe'. It is true or false"),
        (":build", ("--what-if", "offload=disk"), 2, "offload is 'disk'. It is optimizer or activations"),
        (":build", ("--max-batch", "1GB", "--what-if", "precision=bf16"), 2, "--what-if does not go with --max-batch"),
        (":build", ("--max-batch", "1GB", "--max-sequence", "1GB"), 2, "--max-sequence does not go with --max-batch"),
        (":build", ("--max-batch", "1GB", "--strict"), 2, "--strict does not go with --max-batch"),
        (":build", ("--what-if", "precision=bf16", "-o", "x.json"), 2, "--output does not go with --what-if"),
        (":build", ("--symbolic",), 2, "--symbolic is by formula"),
        (":build", ("--expand",), 2, "--expand is by formula"),
        (":build", ("--what-if", "checkpoint=full"), 2, "no repeated blocks to checkpoint"),
    ],
)
def test_what_goes_wrong_is_a_message(ask, mine, *, name, words, code, said):
    """No traceback; 2 for a wrong question, 1 for the user's own exception."""
    place = name if name.startswith("none") else f"{mine}{name}"
    answer = ask("count", place, "--trace", *words)
    assert answer.code == code
    assert said in answer.err
    assert "Traceback" not in answer.err
    assert answer.out == ""


def test_what_the_users_code_prints_is_no_part_of_the_answer(ask, mine):
    """It goes to stderr: stdout holds valid JSON and nothing else."""
    answer = ask("count", f"{mine}:prints", "--trace", "--json")
    assert answer.json["answer"]["model_flops"] == FLOPS
    assert "not the answer" in answer.err


def test_a_file_that_raises_when_it_is_imported(ask, tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("import torch\nx = 1 / 0\n")
    answer = ask("count", f"{path}:build", "--trace")
    assert answer.code == 1
    assert "broken.py raised ZeroDivisionError: division by zero (at broken.py:2)" in answer.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("mine.py:build",), "add --trace"),
        (("gpt2", "--target", "cuda"), "--target goes with --trace"),
        (("gpt2", "--what-if", "checkpoint=full"), "--what-if goes with --trace"),
        (("gpt2", "--max-batch", "1GB"), "--max-batch goes with --trace"),
        (("gpt2", "--by", "source"), "--by source goes with --trace"),
        (("gpt2", "--trace", "--symbolic"), "--symbolic is by formula: leave out --trace"),
        (("gpt2", "--trace", "--by", "parameter"), "--by parameter is by formula: leave out --trace"),
        (("gpt2", "--precision", "fp16"), "goes with --trace --target cuda"),
    ],
)
def test_what_needs_a_trace_says_so(ask, words, said):
    answer = ask("count", *words)
    assert answer.code == 2
    assert said in answer.err


def test_a_preset_under_what_ifs_and_on_a_chip(ask, model_file):
    """The trainer's own model, batch, optimizer and precision; the formula's lines on a chip's roofs."""
    rows = ask("count", model_file, "--trace", "--what-if", "checkpoint=full", "--json").json["answer"]["what_if"]
    assert rows[0]["model_flops"] == ask("count", model_file, "--json").json["answer"]["total_flops"]
    assert rows[1]["executed_flops"] > rows[0]["executed_flops"]
    assert "roofline on H100 SXM" in ask("count", model_file, "--chip", "h100").out
    cuda = ask("count", model_file, "--trace", "--target", "cuda", "--strict")
    assert cuda.code == 0, cuda.err
    assert "they agree on every contraction" in cuda.out
