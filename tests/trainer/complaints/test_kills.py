"""SIGKILL at random moments, again and again: the run goes on each time and ends with the bits of one never killed."""

import random
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from torchledger.trainer.checkpoint import checkpoints, latest_checkpoint, load_optimizer, load_weights
from torchledger.trainer.loop import new_run, train
from torchledger.trainer.metrics import read_metrics
from torchledger.trainer.setup import resolve
from torchledger.trainer.step import build_step

pytestmark = pytest.mark.usefixtures("one_thread")

# Goes on from the newest whole checkpoint, or begins; says each event, so that whoever kills can choose the moment.
CHILD = """
import sys
from pathlib import Path
from torchledger.trainer import RunFolder, latest_checkpoint, resolve, train
folder = RunFolder.open(Path(sys.argv[1]))
for event in train(resolve(folder.config()), folder, checkpoint=latest_checkpoint(folder.checkpoints)):
    print(type(event).__name__, flush=True)
"""


def killed(folder, after_events, after_s):
    """Train in a process of its own, and kill it so many events and seconds after its start; whether it was alive."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, folder.path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for _ in range(after_events):
        process.stdout.readline()
    time.sleep(after_s)
    process.kill()
    said = process.communicate()[1]
    assert process.returncode in {-9, 0}, said
    return process.returncode == -9


def told(folder):
    """Losses of steps and evaluations, accuracies and texts: everything but times."""
    kept = ("loss", "gradient_norm", "validation_loss", "accuracy", "text", "value", "skipped", "num_tokens")
    return [
        (row["kind"], row["step"], *(row.get(name) for name in kept))
        for row in read_metrics(folder.metrics_path)
        if row["kind"] not in {"checkpoint", "activation_scale"}
    ]


def state(setup, path):
    """Every tensor of a checkpoint, read back into a step as a resume reads it, as bytes."""
    step = build_step(setup.spec, setup.recipe)
    manifest = load_weights(path, step.model)
    load_optimizer(path, manifest, step.model, step.optimizer)
    moments = [
        value.numpy().tobytes()
        for parameter in step.model.parameters()
        for value in step.optimizer.state[parameter].values()
    ]
    return [parameter.detach().numpy().tobytes() for parameter in step.model.parameters()] + moments


def prove(config, num_kills, tmp_path):
    """Kill a run so many times while it is alive, load every checkpoint after each; then hold it against a whole one.

    Returns:
        How far it was at each kill, in steps.
    """
    setup = resolve(config)
    whole = new_run(setup, tmp_path / "whole")
    *_, end = train(setup, whole)
    assert end.lifetime.num_steps == config.num_steps
    folder = new_run(setup, tmp_path / "killed")
    chance, reached = random.Random(0), []
    stride = config.num_steps // num_kills  # a third of it in steps on average, and what is done in some milliseconds
    while len(reached) < num_kills:
        if not killed(folder, chance.randint(1, stride), chance.uniform(0, 0.03)):
            pytest.fail(f"the run ended before it was killed {num_kills} times, after {reached}")
        found = checkpoints(folder.checkpoints)
        for _, path in found:
            state(setup, path)
        assert len(found) == len(list(folder.checkpoints.glob("step-*"))), "what has its name is whole"
        reached.append(found[0][0] if found else 0)
    *_, end = train(setup, folder, checkpoint=latest_checkpoint(folder.checkpoints))
    assert told(folder) == told(whole)
    ends = [state(setup, latest_checkpoint(each.checkpoints)) for each in (folder, whole)]
    assert ends[0] == ends[1]
    assert end.lifetime.num_steps == config.num_steps
    return reached


@pytest.fixture
def harsh(config, tiny):
    """A run of several epochs with dropout, bf16, four micro-batches, evaluations in between and a short order."""
    recipe = replace(config.recipe, precision="bf16", attention="math", accumulation_steps=4)
    model = replace(tiny, attention=replace(tiny.attention, dropout=0.1))
    return replace(config, model=model, recipe=recipe, eval_interval=5, checkpoint_interval=3)


def test_three_kills(harsh, tmp_path):
    """The short form: three kills, and the run ends as if nothing had been."""
    config = replace(harsh, num_steps=150)
    assert resolve(config).epochs > 1
    prove(config, 3, tmp_path)


@pytest.mark.proof
def test_fifty_kills(harsh, tmp_path):
    """Fifty kills over one run of many epochs, every checkpoint loadable after each, and the bits of a whole run."""
    config = replace(harsh, num_steps=1500)
    assert resolve(config).epochs > 2
    reached = prove(config, 50, tmp_path)
    assert reached == sorted(reached)
    assert len(set(reached)) > 25, "kills fell in many places"
