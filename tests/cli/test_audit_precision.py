import json

import pytest

from torchledger.cli.audit import AUDITS
from torchledger.cli.audit_precision import command
from torchledger.cli.main import main

SMALL = ("--sequence", "16", "--set", "model.num_layers=1", "--set", "model.vocab_size=512")

OWN = """
import torch
from torch import nn

def build():
    model = nn.Linear(8, 4)
    return {
        "model": model,
        "batch": (torch.ones(32, 8),),
        "loss": lambda output, batch: output.square().mean() * FACTOR,
        "optimizer": torch.optim.AdamW,
    }
"""


@pytest.fixture
def own(tmp_path):
    def written(factor):
        path = tmp_path / "my.py"
        path.write_text(OWN.replace("FACTOR", factor), encoding="utf-8")
        return f"{path}:build"

    return written


def test_a_preset_is_audited_and_nothing_is_found(capsys):
    """The small preset as it begins: no warning, so `--strict` is content, and the plain text tells all tables."""
    assert main(["audit", "precision", "stdlib-small", *SMALL, "--strict"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("precision of stdlib-small: ")
    for title in ("numbers of a step", "what each format loses", "steps against FP32", "what looking cost"):
        assert title in out


def test_json_has_the_whole_record(capsys):
    """Kinds, layers, updates and checks are in the answer, exponents as pairs."""
    assert main(["audit", "precision", "stdlib-small", *SMALL, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["answer"]
    assert {"kinds", "tensors", "updates", "logits", "checks"} <= set(found["tables"])
    row = found["tables"]["kinds"][0]
    assert row["kind"] == "weight"
    assert sum(number for _, number in row["exponents"]) == row["elements"] - row["zeros"]


def test_strict_fails_on_gradients_that_fp16_loses(own, tmp_path, capsys):
    """A loss of 1e-9 in FP16 without a loss scale: a warning, exit 1, and a page with plots."""
    page = tmp_path / "page.html"
    asked = ["audit", "precision", own("1e-9"), "--precision", "fp16", "--strict", "--html", str(page)]
    assert main(asked) == 1
    assert "loss scale" in capsys.readouterr().out
    assert "precision-exponents" in page.read_text(encoding="utf-8")


def test_numbers_that_are_none_are_valid_json(own, capsys):
    """A loss of infinity times 0 is NaN: an error is found, and the JSON can be read."""
    assert main(["audit", "precision", own("float('inf')"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
    assert found["answer"]["findings"][0]["severity"] == "error"


def test_a_model_without_a_batch_is_refused(tmp_path, capsys):
    """Wrong usage is told in a sentence and exits 2."""
    path = tmp_path / "my.py"
    path.write_text("from torch import nn\n\ndef build():\n    return nn.Linear(2, 2)\n", encoding="utf-8")
    assert main(["audit", "precision", f"{path}:build"]) == 2
    assert "return (model, batch)" in capsys.readouterr().err


def test_the_list_of_audits_says_what_the_command_says():
    """The line in the group's table is the first sentence of the command's own help."""
    assert command.help.partition("\n\n")[0] == AUDITS["precision"]
