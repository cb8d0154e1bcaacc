import errno
import json
import os
import pickle
import resource
import signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from torchledger.spec import MoeSpec, OptimizerSpec, Recipe
from torchledger.trainer.checkpoint import (
    checkpoints,
    clear_leftovers,
    latest_checkpoint,
    load_optimizer,
    load_weights,
    model_state,
    save_checkpoint,
)
from torchledger.trainer.errors import CheckpointError, CheckpointMismatch
from torchledger.trainer.identity import Identity, numerics
from torchledger.trainer.manifest import Manifest, checksum
from torchledger.trainer.optimizer import optimizer_state
from torchledger.trainer.step import build_step, example_batch

RECIPE = Recipe(batch_size=2, sequence_length=8, num_tokens=1600, optimizer=OptimizerSpec(learning_rate=1e-2))


def names(folder):
    """What is in a folder, hidden things too."""
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def step(tiny):
    """A model after one update."""
    return stepped(tiny)


def stepped(spec):
    step = build_step(spec, RECIPE)
    step(example_batch(RECIPE), 0)
    return step


def save(folder, step, number, keep=2):
    identity = Identity(step.model.spec, RECIPE, {"train_sha256": "ab"}, numerics(torch.device("cpu")))
    manifest = Manifest(number, identity, {"loss": 2.5}, {})
    return save_checkpoint(folder, step.model, step.optimizer, manifest, keep=keep)


def weights(step):
    return {name: tensor.detach().clone() for name, tensor in model_state(step.model).items()}


def test_what_is_saved_is_loaded_bit_for_bit(any_spec, tmp_path):
    """Weights and optimizer state come back with every bit and format, for every architecture."""
    step = stepped(any_spec)
    path = save(tmp_path, step, 1)
    other = build_step(any_spec, replace(RECIPE, seed=99))
    manifest = load_weights(path, other.model)
    load_optimizer(path, manifest, other.model, other.optimizer)
    assert all(torch.equal(tensor, weights(other)[name]) for name, tensor in weights(step).items())
    before, after = optimizer_state(step.model, step.optimizer), optimizer_state(other.model, other.optimizer)
    assert {name: (t.dtype, t.tolist()) for name, t in before.items()} == {
        name: (t.dtype, t.tolist()) for name, t in after.items()
    }
    assert (manifest.step, manifest.metrics) == (1, {"loss": 2.5})


def test_a_tied_head_is_stored_once_and_a_router_bias_is_stored(tiny, tmp_path):
    """A tied head is stored once; a buffer that is no function of the spec is saved, rotary tables are not."""
    moe = MoeSpec(4, 2, 8, router_bias=True)
    step = stepped(replace(tiny, tied_embeddings=True, moe=moe))
    step.model.layers[0].mlp.router.bias.fill_(3.0)
    stored = Manifest.read(save(tmp_path, step, 1)).files["weights.safetensors"].tensors
    assert "head.weight" not in stored
    assert "layers.0.mlp.router.bias" in stored
    assert not [name for name in stored if "rotary" in name]


def test_the_newest_stay(step, tmp_path):
    """Of five checkpoints with keep 2 the last two are left, the newest first."""
    for number in range(1, 6):
        save(tmp_path, step, number)
    assert [number for number, _ in checkpoints(tmp_path)] == [5, 4]
    assert names(tmp_path) == ["step-00000004", "step-00000005"]


def test_saving_the_same_step_again_replaces_it(step, tmp_path):
    """A step saved twice is there once, as saved last."""
    save(tmp_path, step, 1)
    with torch.no_grad():
        step.model.head.weight.fill_(0.5)
    path = save(tmp_path, step, 1)
    other = build_step(step.model.spec, RECIPE)
    load_weights(path, other.model)
    assert (other.model.head.weight == 0.5).all()
    assert names(tmp_path) == ["step-00000001"]


@pytest.mark.parametrize("damage", ["no manifest", "half manifest", "short weights", "no optimizer"])
def test_half_checkpoints_are_passed_over(step, tmp_path, damage):
    """The newest *whole* checkpoint is found, whatever is missing from a newer one."""
    whole, half = save(tmp_path, step, 1), save(tmp_path, step, 2)
    manifest = half / "manifest.json"
    if damage == "no manifest":
        manifest.unlink()
    elif damage == "half manifest":
        manifest.write_bytes(manifest.read_bytes()[:100])
    elif damage == "short weights":
        os.truncate(half / "weights.safetensors", 1000)
    else:
        (half / "optimizer.safetensors").unlink()
    assert latest_checkpoint(tmp_path) == whole


def test_an_empty_or_missing_folder_has_no_checkpoint(tmp_path):
    """Nothing saved yet is no error."""
    assert latest_checkpoint(tmp_path) is None
    assert latest_checkpoint(tmp_path / "no") is None


@pytest.mark.parametrize("name", ["weights.safetensors", "optimizer.safetensors"])
def test_a_flipped_bit_is_found(step, tmp_path, name):
    """A file of the right length with one bit changed is refused, not trained on."""
    path = save(tmp_path, step, 1)
    content = bytearray((path / name).read_bytes())
    content[-1] ^= 1
    (path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{name} is damaged: its checksum"):
        load_optimizer(path, load_weights(path, step.model), step.model, step.optimizer)


def test_another_models_checkpoint_names_the_fields(step, tiny, tmp_path):
    """Loading into another model names every differing field with both values, and changes no weight."""
    path = save(tmp_path, step, 1)
    other = build_step(replace(tiny, num_layers=3, vocab_size=300), RECIPE)
    before = weights(other)
    with pytest.raises(CheckpointMismatch, match=r"spec\.vocab_size: 257 .* 300 now; spec\.num_layers: 2 .* 3 now"):
        load_weights(path, other.model)
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(other).items())


def test_no_space_while_saving_leaves_the_previous_checkpoint(step, tmp_path, monkeypatch):
    """A disk that is full at the sync: a clear error, the earlier checkpoint whole, nothing half left behind."""
    previous = save(tmp_path, step, 1)

    def full(_handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"No space left on device; the previous checkpoint .*00000001 is whole"):
        save(tmp_path, step, 2)
    monkeypatch.undo()
    assert latest_checkpoint(tmp_path) == previous
    assert names(tmp_path) == ["step-00000001"]


@pytest.mark.parametrize("limit", [100, 3_000, 100_000])
def test_a_write_that_the_system_cuts_leaves_the_previous_checkpoint(step, tmp_path, limit):
    """The kernel itself refuses to write beyond `limit` bytes, in the weights or later: the earlier one stays whole."""
    previous = save(tmp_path, step, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(CheckpointError, match=r"cannot save .*00000002: .*File too large.*00000001 is whole"):
            save(tmp_path, step, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert latest_checkpoint(tmp_path) == previous
    assert names(tmp_path) == ["step-00000001"]


def test_a_folder_that_cannot_be_made_is_told(step, tmp_path):
    """Where a file stands in the way of the folder, the error says so, and that there is no earlier checkpoint."""
    (tmp_path / "checkpoints").write_text("in the way")
    with pytest.raises(CheckpointError, match=r"cannot save .* there is no earlier one"):
        save(tmp_path / "checkpoints", step, 1)


def test_leftovers_of_a_kill_are_cleared(step, tmp_path):
    """Half-written and half-deleted checkpoints go; one that was stepping aside when the kill came is put back."""
    whole = save(tmp_path, step, 1)
    whole.rename(tmp_path / ".step-00000001.replaced")
    (tmp_path / ".step-00000002.partial").mkdir()
    (tmp_path / ".step-00000003.deleted").mkdir()
    assert sorted(path.name for path in clear_leftovers(tmp_path)) == [
        ".step-00000002.partial",
        ".step-00000003.deleted",
    ]
    assert names(tmp_path) == ["step-00000001"]
    assert latest_checkpoint(tmp_path) == whole


def test_a_checkpoint_of_the_first_schema_still_loads(step, tmp_path):
    """Whole-file checksums, tensors without their own, files of safetensors' own writer: schema /1, bit for bit."""
    folder = tmp_path / "step-00000001"
    folder.mkdir()
    files = {}
    parts = {"weights": model_state(step.model), "optimizer": optimizer_state(step.model, step.optimizer)}
    for part, tensors in parts.items():
        path = folder / f"{part}.safetensors"
        save_file({name: tensor.detach().clone() for name, tensor in tensors.items()}, path)
        about = {n: {"shape": list(t.shape), "dtype": str(t.dtype).removeprefix("torch.")} for n, t in tensors.items()}
        files[path.name] = {"num_bytes": path.stat().st_size, "crc32": checksum(path), "tensors": about}
    identity = Identity(step.model.spec, RECIPE, {}, numerics(torch.device("cpu"))).to_dict()
    row = {"schema": "torchledger.checkpoint/1", "step": 1, **identity, "metrics": {"loss": 2.5}, "files": files}
    (folder / "manifest.json").write_text(json.dumps(row))
    other = build_step(step.model.spec, replace(RECIPE, seed=99))
    manifest = load_weights(folder, other.model)
    load_optimizer(folder, manifest, other.model, other.optimizer)
    assert all(torch.equal(tensor, weights(other)[name]) for name, tensor in weights(step).items())
    after = optimizer_state(other.model, other.optimizer)
    assert all(torch.equal(tensor, after[name]) for name, tensor in parts["optimizer"].items())
    assert manifest.check_loss is None
    content = bytearray((folder / "weights.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "weights.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged: its checksum does not match"):
        load_weights(folder, other.model)


def test_reading_runs_no_code(step, tmp_path, monkeypatch):
    """Neither saving nor loading goes through pickle: with it taken away all of it works."""

    def refused(*_args, **_options):
        raise AssertionError("pickle was used")

    for name in ("load", "loads", "Unpickler", "dump", "dumps"):
        monkeypatch.setattr(pickle, name, refused)
    monkeypatch.setattr(torch, "load", refused)
    monkeypatch.setattr(torch, "save", refused)
    path = save(tmp_path, step, 1)
    other = build_step(step.model.spec, replace(RECIPE, seed=99))
    load_optimizer(path, load_weights(path, other.model), other.model, other.optimizer)
    assert all(torch.equal(tensor, weights(other)[name]) for name, tensor in weights(step).items())
