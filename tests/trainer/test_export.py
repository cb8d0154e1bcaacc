import json
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from torchledger.spec import OptimizerSpec, Recipe
from torchledger.trainer.checkpoint import model_state, save_checkpoint
from torchledger.trainer.durable import write_text
from torchledger.trainer.errors import CheckpointError
from torchledger.trainer.export import export_weights
from torchledger.trainer.identity import Identity, numerics
from torchledger.trainer.manifest import MANIFEST_NAME, Manifest
from torchledger.trainer.step import build_step, example_batch
from torchledger.trainer.stored import Piece, write_parts

RECIPE = Recipe(batch_size=2, sequence_length=8, num_tokens=1600, optimizer=OptimizerSpec(learning_rate=1e-2))


@pytest.fixture
def step(tiny):
    """A model with a tied head after one update."""
    step = build_step(replace(tiny, tied_embeddings=True), RECIPE)
    step(example_batch(RECIPE), 0)
    return step


def manifest(step):
    return Manifest(1, Identity(step.model.spec, RECIPE, {}, numerics(torch.device("cpu"))), {})


@pytest.fixture
def checkpoint(step, tmp_path):
    """Of one process."""
    return save_checkpoint(tmp_path / "checkpoints", step.model, step.optimizer, manifest(step), keep=1)


def test_the_file_has_the_weights(step, checkpoint, tmp_path):
    """Any reader of safetensors finds every weight bit for bit, the model and the step; a tied head is there once."""
    exported = export_weights(checkpoint, tmp_path / "out" / "model.safetensors")
    read, state = load_file(exported.path), model_state(step.model)
    assert read.keys() == state.keys()
    assert all(read[name].equal(tensor) for name, tensor in state.items())
    assert "head.weight" not in read
    assert exported.num_parameters == sum(tensor.numel() for tensor in state.values())
    assert (exported.step, exported.num_tensors) == (1, len(state))
    assert exported.num_bytes == exported.path.stat().st_size
    with safe_open(exported.path, framework="pt") as stream:
        words = stream.metadata()
    assert (words["format"], words["step"]) == ("pt", "1")
    assert json.loads(words["spec"])["num_layers"] == 2


def test_a_runs_folder_is_its_newest_checkpoint(checkpoint, tmp_path):
    """A folder that has `checkpoints` in it stands for the newest of them; another has none."""
    assert export_weights(tmp_path, tmp_path / "a").checkpoint == checkpoint
    (tmp_path / "no").mkdir()
    with pytest.raises(CheckpointError, match="no whole checkpoint in"):
        export_weights(tmp_path / "no", tmp_path / "b")


def test_shards_become_one_file(step, checkpoint, tmp_path):
    """Weights that two ranks saved, rows 0 to 99 of every matrix and the rest, are the file of one process."""
    folder = tmp_path / "shards"
    folder.mkdir()
    files = {}
    for rank in range(2):
        pieces = {}
        for name, tensor in model_state(step.model).items():
            first, last = ((0, 10), (10, tensor.shape[0]))[rank]
            offset = (first, *[0] * (tensor.ndim - 1))
            pieces[f"weights/{name}"] = Piece(tensor[first:last], offset, tuple(tensor.shape))
        files |= write_parts(folder, pieces, rank)
    write_text(folder / MANIFEST_NAME, manifest(step).with_files(files).to_json())
    one, two = (export_weights(source, tmp_path / name).path for source, name in ((checkpoint, "a"), (folder, "b")))
    assert one.read_bytes() == two.read_bytes()


def test_weights_are_rounded_to_the_format_that_is_asked_for(step, checkpoint, tmp_path):
    """bf16 halves the file's data; each number is the nearest that bf16 has."""
    whole, half = (export_weights(checkpoint, tmp_path / str(p), p) for p in (None, "bf16"))
    read = load_file(half.path)
    assert all(read[name].equal(tensor.bfloat16()) for name, tensor in model_state(step.model).items())
    assert half.num_parameters * 2 < half.num_bytes < whole.num_bytes / 2 + 4096


def test_what_a_format_cannot_hold_is_refused(step, tmp_path):
    """1e6 is beyond fp16's 65,504: no infinity is written, the tensor is named, and no file is left."""
    with torch.no_grad():
        step.model.final_norm.weight[0] = 1e6
    path = save_checkpoint(tmp_path / "checkpoints", step.model, step.optimizer, manifest(step), keep=1)
    with pytest.raises(CheckpointError, match=r"final_norm.weight has numbers up to 1e\+06, .* 65504"):
        export_weights(path, tmp_path / "out" / "a", "fp16")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_damaged_checkpoint_leaves_no_file(checkpoint, tmp_path):
    """A flipped bit is found, and the file that was there before stays."""
    weights = checkpoint / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_text("before")
    with pytest.raises(CheckpointError, match="is damaged"):
        export_weights(checkpoint, tmp_path / "out" / "a")
    assert [(path.name, path.read_text()) for path in (tmp_path / "out").iterdir()] == [("a", "before")]


def test_a_place_that_cannot_be_written_to_is_told(checkpoint, tmp_path):
    """Where a file stands in the way of the folder, the error names both."""
    (tmp_path / "out").write_text("in the way")
    with pytest.raises(CheckpointError, match=f"cannot write {tmp_path}/out/a"):
        export_weights(checkpoint, tmp_path / "out" / "a")
