import json
from dataclasses import dataclass

import pytest

from torchledger.cli.main import main


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
