"""A run of any optimizer and precision, stopped and resumed from its files, is the uninterrupted one bit for bit."""

from dataclasses import replace

import pytest
import torch

from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, OptimizerSpec, Recipe
from torchledger.trainer.loop import new_run, resume_point, train
from torchledger.trainer.metrics import read_metrics
from torchledger.trainer.prepare import prepare
from torchledger.trainer.run_config import RunConfig, SampleConfig
from torchledger.trainer.setup import resolve

SPEC = ModelSpec("tiny", 257, 64, 2, 64, AttentionSpec(4), MlpSpec(96))
CASES = (
    ("adamw", "bf16-master", "none"),
    ("adamw", "bf16-moments", "selective"),
    ("sgd", "bf16-pure", "full"),
    ("lion", "fp32", "selective"),
    ("muon", "bf16", "none"),
    ("adafactor", "fp32", "none"),
    ("adamw-8bit", "bf16-master", "full"),
    ("adamw", "fp8", "none"),
    ("muon", "fp8", "full"),
)


@pytest.fixture(autouse=True)
def threads():
    """A run sets torch's thread count: it is put back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory):
    """Prepared data: 16 small texts as bytes."""
    source = tmp_path_factory.mktemp("source")
    for i in range(16):
        (source / f"{i}.txt").write_text("".join(f"line {i * j % 97} of text {i}\n" for j in range(12)))
    return prepare(source, tmp_path_factory.mktemp("data"), tokenizer="bytes", validation_fraction=0.2).folder


def _losses(folder):
    return [row["loss"] for row in read_metrics(folder.metrics_path) if row["kind"] == "step"]


@pytest.mark.parametrize(("kind", "precision", "recompute"), CASES)
def test_resumed_is_uninterrupted(data_folder, tmp_path, kind, precision, recompute):
    """Stopped after the checkpoint of step 3 of 6, with accumulation: the same losses, weights, state."""
    optimizer = OptimizerSpec(kind, learning_rate=1e-2, schedule="wsd", momentum=0.9 if kind == "sgd" else 0.0)
    recipe = Recipe(4, 16, precision, optimizer, accumulation_steps=2, recompute=recompute)
    config = RunConfig(
        SPEC,
        data_folder,
        recipe,
        num_steps=6,
        runs=tmp_path,
        device="cpu",
        num_threads=1,
        eval_interval=4,
        eval_batches=1,
        checkpoint_interval=3,
        sample=SampleConfig(length=0),
    )
    whole = new_run(resolve(config), tmp_path / "whole")
    list(train(resolve(config), whole))
    parts = new_run(resolve(config), tmp_path / "parts")
    events = train(resolve(replace(config)), parts)
    while type(next(events)).__name__ != "Saved":
        pass
    events.close()
    list(train(resolve(parts.config()), parts, checkpoint=resume_point(parts)))
    assert _losses(parts) == _losses(whole)
    for name in ("weights.safetensors", "optimizer.safetensors"):
        a, b = ((folder.checkpoints / "step-00000006" / name).read_bytes() for folder in (whole, parts))
        assert a == b, name
