import functools
import json
from dataclasses import dataclass

import pytest
import torch

from torchledger.cli import pace, prediction
from torchledger.cli.main import main
from torchledger.meter import calibrate, kernel_seconds


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self):
        """What `--json` printed."""
        return json.loads(self.out)


@pytest.fixture
def ask(capsys, monkeypatch):
    """Run the command line in this process; its colours do not depend on who runs the tests."""
    for name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def run(*words):
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return run


@pytest.fixture
def model_file(tmp_path):
    """A model small enough to count and trace in no time."""
    path = tmp_path / "tiny.toml"
    path.write_text(
        """[model]
vocab_size = 64
max_sequence_length = 16
num_layers = 2
hidden_size = 8
[model.attention]
num_heads = 2
[model.mlp]
intermediate_size = 16
""",
        encoding="utf-8",
    )
    return path


TINY = """
model = "tiny.toml"
data = "data"
name = "tiny"
num_steps = 6
num_threads = 1
eval_interval = 3
eval_batches = 1
checkpoint_interval = 2
[recipe]
batch_size = 2
sequence_length = 16
[recipe.optimizer]
learning_rate = 1e-2
[sample]
length = 4
"""


@pytest.fixture
def here(ask, model_file, tmp_path, monkeypatch):
    """A folder with data, a model of 257 bytes and a run of six steps; calibration takes no time."""
    threads = torch.get_num_threads()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(prediction, "calibrate", functools.partial(calibrate, budget_s=0.02))
    monkeypatch.setattr(pace, "kernel_seconds", lambda calls, **_: kernel_seconds(calls, budget_s=0.0, pool_bytes=0))
    model_file.write_text(model_file.read_text().replace("vocab_size = 64", "vocab_size = 257"))
    (tmp_path / "run.toml").write_text(TINY)
    text = "".join(f"line {number}: the quick brown fox jumps over the lazy dog\n" for number in range(200))
    (tmp_path / "text.txt").write_text(text)
    assert ask("prepare", "text.txt", "--out", "data", "--tokenizer", "bytes").code == 0
    yield tmp_path
    torch.set_num_threads(threads)
