"""What people complain of when runs go on: other data, other rates, other states."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open

from torchledger.trainer.checkpoint import checkpoints
from torchledger.trainer.errors import ResumeRefused
from torchledger.trainer.loop import new_run, resume_point, train
from torchledger.trainer.manifest import Manifest
from torchledger.trainer.metrics import read_metrics
from torchledger.trainer.seeds import STREAMS
from torchledger.trainer.setup import resolve
from torchledger.trainer.step import TrainStep, build_step
from torchledger.trainer.windows import WindowReader

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def seen(monkeypatch):
    """The batches that steps get, by step; one list for each time a step is run."""
    call, batches = TrainStep.__call__, {}

    def noted(self, given, step, may_update=None):
        batches.setdefault(step, []).append(torch.cat([batch[0] for batch in given]))
        return call(self, given, step, may_update)

    monkeypatch.setattr(TrainStep, "__call__", noted)
    return batches


def steps(folder):
    return [row for row in read_metrics(folder.metrics_path) if row["kind"] == "step"]


def test_a_resume_goes_on_in_the_data_and_repeats_none_of_it(config, run, seen):
    """Steps 4 to 7 after a resume see new batches, those of the uninterrupted run (nanoGPT #467)."""
    folder, _ = run(replace(config, keep=9))
    for path in ("step-00000006", "step-00000008"):
        (folder.checkpoints / path).rename(folder.path / path)
    list(train(resolve(folder.config()), folder, checkpoint=resume_point(folder)))
    assert [len(seen[step]) for step in range(8)] == [1, 1, 1, 1, 2, 2, 2, 2]
    assert all(torch.equal(first, again) for step in range(4, 8) for first, again in [seen[step]])
    assert not any(torch.equal(seen[a][0], seen[b][0]) for a in range(8) for b in range(a))


def test_every_kind_of_checkpoint_resumes_alike(config, run):
    """Saved by interval, for ever, or at the end: each leads to the same losses (transformers #17032)."""
    folder, _ = run(replace(config, keep=9, permanent_interval=3))
    whole = [row["loss"] for row in steps(folder)]
    found = [path for _, path in checkpoints(folder.checkpoints)]
    assert [path.name[-1] for path in found] == ["8", "6", "4", "3", "2"]
    for path in found[1:]:
        list(train(resolve(folder.config()), folder, checkpoint=path))
        assert [row["loss"] for row in steps(folder)] == whole


def test_the_learning_rate_goes_on_where_it_was(config, run, tmp_path):
    """The rate of a resumed step is that of the uninterrupted run, to the bit (nanotron #233)."""
    whole, _ = run(config, tmp_path / "whole")
    parts, _ = run(config, tmp_path / "parts")
    (parts.checkpoints / "step-00000008").rename(tmp_path / "away")
    list(train(resolve(parts.config()), parts, checkpoint=resume_point(parts)))
    assert [row["learning_rate"] for row in steps(parts)] == [row["learning_rate"] for row in steps(whole)]


def test_another_horizon_is_refused_with_both_rates(config, run):
    """More steps would stretch the cosine: refused, and what would become of the rate is told (open_clip #413)."""
    folder, _ = run(replace(config, checkpoint_interval=4, keep=9))
    longer = resolve(replace(folder.config(), recipe=replace(config.recipe, num_tokens=0), num_steps=80))
    with pytest.raises(ResumeRefused, match=r"num_tokens.*learning rate of step 4: \S+ becomes \S+"):
        list(train(longer, folder, checkpoint=folder.checkpoints / "step-00000004"))


def test_every_random_stream_is_in_the_checkpoint(config, run):
    """The manifest lists each stream with what it is a function of; there is no state beside (torchtitan #1213)."""
    folder, _ = run(config)
    manifest = Manifest.read(resume_point(folder))
    assert manifest.identity.recipe.seed == 1337
    assert set(STREAMS) <= set(json.loads(manifest.to_json())["streams"])


def test_weights_have_the_models_own_names(config, run):
    """No prefix of a wrapper (`_orig_mod.`, `module.`) is in a checkpoint (nanoGPT #351)."""
    folder, _ = run(config)
    setup = resolve(folder.config())
    own = {name for name, _ in build_step(setup.spec, setup.recipe).model.named_parameters()}
    with safe_open(resume_point(folder) / "weights.safetensors", framework="pt") as stream:
        assert set(stream.keys()) == own


def test_moments_keep_their_format(config, run):
    """In and out of a checkpoint the optimizer's state stays FP32 under bf16 as well (nanotron #245)."""
    folder, _ = run(replace(config, recipe=replace(config.recipe, precision="bf16")))
    with safe_open(resume_point(folder) / "optimizer.safetensors", framework="pt") as stream:
        formats = {stream.get_tensor(name).dtype for name in stream.keys()}  # noqa: SIM118  # it is no mapping
    assert formats == {torch.float32}


def test_a_run_resumed_far_into_it_begins_at_once(config, run, monkeypatch):
    """Going on reads the batches to come and none of those before (transformers #11284: 28 h of skipping)."""
    folder, _ = run(replace(config, num_steps=40, checkpoint_interval=38, keep=9, eval_interval=0))
    (folder.checkpoints / "step-00000040").rename(folder.path / "away")
    read, original = [], WindowReader.read
    monkeypatch.setattr(WindowReader, "read", lambda self, begins: read.append(1) or original(self, begins))
    events = train(resolve(folder.config()), folder, checkpoint=resume_point(folder))
    while type(next(events)).__name__ != "Step":
        pass
    events.close()
    assert 1 <= len(read) < 10


def test_a_run_that_ends_early_saved_nothing_twice(config):
    """A new run's folder with no checkpoint yet can begin anew, and has the rows of one run only."""
    setup = resolve(config)
    folder = new_run(setup)
    events = train(setup, folder)
    while getattr(next(events), "step", None) != 0:
        pass
    events.close()
    list(train(setup, folder))
    assert [row["step"] for row in steps(folder)] == list(range(8))
