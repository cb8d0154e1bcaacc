"""`torchledger audit copies`."""

from pathlib import Path

OWN = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 64)

    def forward(self, x):
        h = self.first(x).transpose(1, 2).contiguous()
        return h.relu().transpose(1, 2).square().mean()

def build():
    return Net(), torch.zeros(4, 32, 64)
"""


def test_a_users_own_fault_is_named(ask, tmp_path: Path):
    """The line, the bytes and what to do; `--strict` exits 1; the page stands alone."""
    file, page = tmp_path / "own.py", tmp_path / "page.html"
    file.write_text(OWN, encoding="utf-8")
    answer = ask("audit", "copies", f"{file}:build", "--strict", "--json", "--html", page)
    assert answer.code == 1, answer.err
    told = answer.json["answer"]
    (finding,) = told["findings"]
    assert finding["place"].endswith("own.py:11")
    assert finding["evidence"]["copied_bytes"] == 4 * 32 * 64 * 4
    assert told["facts"]["avoidable_bytes"] == 2 * 4 * 32 * 64 * 4
    assert "own.py:11" in page.read_text(encoding="utf-8")


def test_a_sound_model_passes(ask, model_file):
    """Exit 0 under `--strict`, and the share of copies is told."""
    answer = ask("audit", "copies", model_file, "--strict")
    assert answer.code == 0, answer.err
    assert "moved_share" in answer.out
    assert "nothing found" in answer.out
