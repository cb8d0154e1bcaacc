import pytest
from safetensors.torch import load_file

from torchledger.formula import num_parameters
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, Recipe
from torchledger.trainer.checkpoint import save_checkpoint
from torchledger.trainer.identity import Identity
from torchledger.trainer.manifest import Manifest
from torchledger.trainer.step import build_step, example_batch

SPEC = ModelSpec("tiny", 257, 32, 2, 32, AttentionSpec(4), MlpSpec(48))


@pytest.fixture
def checkpoint(tmp_path):
    """Of a tiny model after one update, as a run's newest."""
    recipe = Recipe(batch_size=2, sequence_length=8, num_tokens=160)
    step = build_step(SPEC, recipe)
    step(example_batch(recipe), 0)
    manifest = Manifest(1, Identity(SPEC, recipe, {}, {}), {})
    return save_checkpoint(tmp_path / "run" / "checkpoints", step.model, step.optimizer, manifest, keep=1)


def test_one_line_says_what_was_written(ask, checkpoint, tmp_path):
    """Parameters by the formula, of which file and which checkpoint."""
    answer = ask("export", str(tmp_path / "run"), "--out", tmp_path / "a")
    assert answer.code == 0, answer.err
    assert answer.out.startswith(f"{tmp_path}/a: {num_parameters(SPEC):,} parameters in ")
    assert str(checkpoint) in answer.out
    assert sum(tensor.numel() for tensor in load_file(tmp_path / "a").values()) == num_parameters(SPEC)


def test_json_has_the_figures(ask, checkpoint, tmp_path):
    """The answer names file, checkpoint, step and sizes."""
    answer = ask("export", checkpoint, "--out", tmp_path / "a", "--precision", "bf16", "--json")
    found = answer.json["answer"]
    assert (found["path"], found["checkpoint"], found["step"]) == (str(tmp_path / "a"), str(checkpoint), 1)
    assert found["num_parameters"] == num_parameters(SPEC)
    assert found["num_bytes"] == (tmp_path / "a").stat().st_size


def test_a_file_that_is_there_is_not_replaced_unasked(ask, checkpoint, tmp_path):
    """Exit code 2 and the file as it was; with --force it is replaced."""
    (tmp_path / "a").write_text("before")
    answer = ask("export", checkpoint, "--out", tmp_path / "a")
    assert answer.code == 2
    assert "--force" in answer.err
    assert (tmp_path / "a").read_text() == "before"
    assert ask("export", checkpoint, "--out", tmp_path / "a", "--force").code == 0


def test_a_folder_without_a_checkpoint_is_told(ask, tmp_path):
    """Exit code 1 and where it was looked for."""
    answer = ask("export", tmp_path, "--out", tmp_path / "a")
    assert answer.code == 1
    assert f"no whole checkpoint in {tmp_path}" in answer.err


def test_a_hugging_face_folder(ask, checkpoint, tmp_path):
    """`--format huggingface` writes config and weights; the answer names family and size, notes what is missing."""
    answer = ask("export", checkpoint, "--format", "huggingface", "--out", tmp_path / "hf")
    assert answer.code == 0, answer.err
    assert answer.out == f"{tmp_path}/hf: {num_parameters(SPEC):,} parameters as a llama, of {checkpoint}\n"
    assert "tokenizer" in answer.err
    assert sorted(path.name for path in (tmp_path / "hf").iterdir()) == ["config.json", "model.safetensors"]
    again = ask("export", checkpoint, "--format", "huggingface", "--out", tmp_path / "hf")
    assert again.code != 0
    assert "not empty" in again.err
    assert "Traceback" not in again.err
