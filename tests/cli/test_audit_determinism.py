"""The command: its tables, what it finds in a user's file and in another process, its exits."""

import itertools
import json

import pytest

from torchledger.cli.main import main

SMALL = (
    "--sequence", "8", "--set", "model.num_layers=1", "--set", "model.vocab_size=64", "--set", "model.hidden_size=32",
    "--set", "model.mlp.intermediate_size=32", "--processes", "0",
)  # fmt: skip

OWN = """
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

NAMES = ("query", "key", "value", "gate", "up", "down", "norm")


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict({name: nn.Linear(4, 4) for name in NAMES})

    def forward(self, x):
        for name in ORDER:
            x = self.layers[name](x).tanh()
        return x.square().mean()


def build():
    data = TensorDataset(torch.randn(32, 4))
    return {"model": Layers(), "batches": DataLoader(data, batch_size=4, LOADER), "optimizer": torch.optim.SGD}
"""


@pytest.fixture
def own(tmp_path):
    numbers = itertools.count()

    def written(order="NAMES", loader="shuffle=True, generator=torch.Generator().manual_seed(1)"):
        path = tmp_path / f"my{next(numbers)}.py"  # a module is imported once in a process
        path.write_text(OWN.replace("ORDER", order).replace("LOADER", loader), encoding="utf-8")
        return f"{path}:build"

    return written


def test_a_preset_repeats_and_the_page_has_a_chart(capsys, tmp_path):
    """The small preset: nothing that harms, so `--strict` is content; every run has a row; the page is one file."""
    page = tmp_path / "page.html"
    assert main(["audit", "determinism", "stdlib-small", *SMALL, "--strict", "--html", str(page)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("determinism of stdlib-")
    for told in ("again from the same state (run 2)", "made anew from the seed", "data and first weights, 2 batches"):
        assert told in out
    assert "operations that were the same, bit for bit" in page.read_text(encoding="utf-8")


def test_the_same_seed_gives_the_same_fingerprint_and_another_gives_another(capsys):
    """`final_hash` says of two runs whether they were the same to the last bit."""
    hashes = []
    for seed in ("5", "5", "0"):
        assert main(["audit", "determinism", "stdlib-small", *SMALL, "--seed", seed, "--steps", "1", "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)["answer"]["facts"]
        assert facts["seed"]["torch"] == seed
        hashes.append(facts["final_hash"])
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_sets_order_shows_in_another_process(own, capsys):
    """Going over a set of names runs other layers there: the line that does it is named, and `--strict` exits 1."""
    target = own(order="set(NAMES)")
    assert main(["audit", "determinism", target, "--processes", "2", "--steps", "1", "--strict"]) == 1
    out = capsys.readouterr().out
    assert "in another process (number 2)" in out
    line = OWN.splitlines().index("            x = self.layers[name](x).tanh()") + 1
    assert f"my0.py:{line}" in out
    assert "sorted(...)" in out


def test_a_loader_of_the_users_own_is_gone_through_in_order(own, capsys):
    """With a seeded generator nothing is found; without one the loader is named."""
    assert main(["audit", "determinism", own(), "--processes", "0", "--strict"]) == 0
    assert main(["audit", "determinism", own(loader="shuffle=True"), "--processes", "0", "--strict"]) == 1
    assert "no generator of its own" in capsys.readouterr().out


def test_mistakes_are_told_in_one_line(own, capsys):
    """More steps than the loader has batches, and a preset that there is not."""
    assert main(["audit", "determinism", own(), "--steps", "9", "--processes", "0"]) == 2
    assert "the data has 8 batches, and number 8 was asked for" in capsys.readouterr().err
    assert main(["audit", "determinism", "no-such-model"]) == 2
    assert "no-such-model" in capsys.readouterr().err
