from dataclasses import replace

import pytest
import torch

from torchledger.trainer.errors import CheckpointMismatch
from torchledger.trainer.loop import resume_point, train
from torchledger.trainer.manifest import Manifest
from torchledger.trainer.selfcheck import compare, row_of
from torchledger.trainer.setup import resolve

pytestmark = pytest.mark.usefixtures("one_thread")


def changed(folder, loss):
    """The manifest of a run's newest checkpoint, with another loss of the check written into it."""
    path = resume_point(folder)
    manifest = Manifest.read(path)
    (path / "manifest.json").write_text(replace(manifest, check_loss=loss(manifest.check_loss)).to_json())


def resumed(folder):
    return [
        type(e).__name__ + getattr(e, "message", "")
        for e in train(resolve(folder.config()), folder, checkpoint=resume_point(folder))
    ]


def test_a_resumed_run_gives_the_check_bit_for_bit(config, run, tiny):
    """With dropout, bf16 and a tied head the loss of the fixed row comes back with every bit: nothing is warned of."""
    model = replace(tiny, tied_embeddings=True, attention=replace(tiny.attention, dropout=0.1))
    folder, _ = run(replace(config, model=model, recipe=replace(config.recipe, precision="bf16", attention="math")))
    assert Manifest.read(resume_point(folder)).check_loss > 0
    assert not [event for event in resumed(folder) if event.startswith("Warned")]


def test_weights_that_come_back_as_others_are_refused(config, run):
    """A checkpoint whose model had another loss when it was saved is not trained on; both losses are told."""
    folder, _ = run(config)
    changed(folder, lambda loss: loss + 0.5)
    with pytest.raises(CheckpointMismatch, match=r"does not give back its model: .* when it was saved, .* now"):
        resumed(folder)


def test_a_last_bit_is_warned_of(config, run):
    """A loss that differs in rounding only, on what should be the same machine, is a warning with all digits."""
    folder, _ = run(config)
    changed(folder, lambda loss: loss * (1 + 1e-7))
    (warned,) = [event for event in resumed(folder) if event.startswith("Warned")]
    assert "not bit for bit the same" in warned


def test_another_machine_may_round_otherwise(config, run):
    """Where something differs that decides bits, a loss within rounding says nothing; beyond, it is refused."""
    folder, _ = run(config)
    manifest = replace(Manifest.read(resume_point(folder)), check_loss=2.0)
    assert compare("here", manifest, 2.0001, "fp32", is_same=False) == ""
    assert compare("here", manifest, 2.01, "bf16", is_same=False) == ""
    with pytest.raises(CheckpointMismatch):
        compare("here", manifest, 2.01, "fp32", is_same=False)


def test_a_checkpoint_without_a_check_is_taken_as_it_is(config, run):
    """Checkpoints of earlier versions have none."""
    folder, _ = run(config)
    assert (
        compare("here", replace(Manifest.read(resume_point(folder)), check_loss=None), 9.0, "fp32", is_same=True) == ""
    )


def test_the_check_changes_no_training_loss(config, run, tmp_path):
    """Losses are the same with a check after every step and with one at the end: no stream is touched."""
    often, rarely = (run(replace(config, checkpoint_interval=n), tmp_path / str(n))[1] for n in (1, 0))
    losses = [[e.loss for e in events if type(e).__name__ == "Step"] for events in (often, rarely)]
    assert losses[0] == losses[1]


def test_the_row_is_short_and_within_the_vocabulary():
    """128 tokens at most, each a valid id, targets one ahead of inputs."""
    tokens, targets = row_of(50, 1000, torch.device("cpu"))
    assert tokens.shape == targets.shape == (1, 128)
    assert tokens.max() < 50
    assert tokens[0, 1:].equal(targets[0, :-1])
