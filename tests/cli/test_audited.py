"""The subject of an audit as a user names it."""

import json

import click
import pytest
import torch

from torchledger.cli.audited import subject_of

OWN = """
import torch
from torch import nn


def build():
    return nn.Linear(4, 2), torch.zeros(3, 4)


def nothing():
    return 7
"""


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN, encoding="utf-8")
    return path


def test_a_model_by_name_has_weights_tokens_and_an_optimizer(model_file):
    """A model's file gives our trainer's step on tokens drawn from the seed, 2 sequences unless told otherwise."""
    subject = subject_of(str(model_file), {"sequence_length": 8, "seed": 5})
    inputs, targets = subject.batch
    assert inputs.shape == targets.shape == (2, 8)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert subject.optimizer is not None
    assert (subject.vocab_size, subject.initialization) == (64, "fan_in")
    again = subject.rebuild(5)
    assert torch.equal(again.batch[0], inputs)
    assert all(torch.equal(a, b) for a, b in zip(again.model.parameters(), subject.model.parameters(), strict=True))
    assert not torch.equal(subject.rebuild(6).batch[0], inputs)


def test_the_recipe_of_a_preset_may_be_changed(model_file):
    """`--set` and `--batch` reach the recipe; the loss is a scalar with a graph behind it."""
    subject = subject_of(str(model_file), {"batch_size": 3, "sequence_length": 4, "sets": ("model.num_layers=1",)})
    assert subject.batch[0].shape == (3, 4)
    assert len(subject.model.layers) == 1
    assert subject.forward().requires_grad


def test_a_function_of_the_user_makes_its_own_batch(own):
    """What it returns is taken as it is, and an option that would change nothing is refused."""
    subject = subject_of(f"{own}:build", {})
    assert subject.batch.shape == (3, 4)
    with pytest.raises(click.UsageError, match=r"--batch and --set would change nothing: .*own.py:build makes its own"):
        subject_of(f"{own}:build", {"batch_size": 2, "sets": ("a=1",)})
    with pytest.raises(click.UsageError, match=r"makes no model with a batch"):
        subject_of(f"{own}:nothing", {})


def test_a_configuration_is_built_by_transformers(tmp_path):
    """A config.json gives the model of transformers, labels that are its tokens, and AdamW."""
    pytest.importorskip("transformers")
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 40, "n_embd": 8, "n_layer": 1}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, "n_head": 2, "n_positions": 16}), encoding="utf-8")
    subject = subject_of(str(path), {"sequence_length": 6})
    assert subject.batch["input_ids"].shape == (2, 6)
    assert torch.equal(subject.batch["input_ids"], subject.batch["labels"])
    assert subject.vocab_size == 40
    assert isinstance(subject.optimizer, torch.optim.AdamW)
    with pytest.raises(click.UsageError, match="--set would change nothing"):
        subject_of(str(path), {"sets": ("a=1",)})
