import re

import pytest

MODEL = """
import torch
from torch import nn


def build(draw=nn.init.normal_):
    layers = []
    for _ in range(4):
        layer = nn.Linear(128, 128)
        draw(layer.weight)
        layers += [layer, nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(128, 10))
    return {"model": model, "batch": torch.randn(64, 128), "loss": lambda out, _: out.square().mean()}


def sound():
    return build(nn.init.kaiming_normal_)
"""


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(MODEL, encoding="utf-8")
    return path


def test_a_preset_as_the_trainer_draws_it_is_clean(ask, model_file):
    """Our own model is drawn by its recipe's scheme, every matrix of it, and nothing is found."""
    answer = ask("audit", "init", model_file, "--strict", "--json")
    assert answer.code == 0, answer.err
    found = answer.json["answer"]
    assert found["findings"] == []
    assert {row["scheme"] for row in found["tables"]["matrices"]} == {"fan_in"}


@pytest.mark.parametrize("scheme", ["gpt2", "xavier", "kaiming", "mup"])
def test_a_recipes_scheme_is_recognised(ask, model_file, scheme):
    """The weights of each scheme are named by it."""
    answer = ask("audit", "init", model_file, "--set", f"recipe.initialization={scheme}", "--json")
    assert {row["scheme"] for row in answer.json["answer"]["tables"]["matrices"]} == {scheme}


def test_unscaled_weights_of_a_users_file_fail_under_strict_and_kaiming_mends_them(ask, own, tmp_path):
    """Found with their number, exit 1; the attempt beside it is clean, and the page has both."""
    page = tmp_path / "page.html"
    answer = ask("audit", "init", own, "--try", "kaiming", "--strict", "--html", page)
    assert answer.code == 1
    assert "unscaled" in answer.out
    assert re.search(r"sqrt\(128\) = 11\.\d times larger", answer.out)
    assert "after kaiming: 0 of what was" in answer.out
    assert "after kaiming" in page.read_text(encoding="utf-8")
    assert ask("audit", "init", f"{own}:sound", "--strict").code == 0


def test_a_scheme_that_is_not_for_a_model_is_refused(ask, own, model_file):
    """What a model cannot be drawn by is said with what it can."""
    for target, scheme, told in (
        (model_file, "orthogonal", "for models of your own"),
        (own, "mup", "of our trainer"),
    ):
        answer = ask("audit", "init", target, "--try", scheme)
        assert answer.code == 2
        assert told in answer.err
