import errno
import os
import signal
import threading
from dataclasses import replace

import pytest
import torch

from torchledger.spec import OptimizerSpec, Recipe
from torchledger.trainer import saving, stored
from torchledger.trainer.checkpoint import checkpoints, latest_checkpoint, load_extra, load_optimizer, load_weights
from torchledger.trainer.errors import CheckpointError
from torchledger.trainer.identity import Identity, numerics
from torchledger.trainer.loop import new_run, train
from torchledger.trainer.manifest import Manifest
from torchledger.trainer.saving import Saver
from torchledger.trainer.setup import resolve
from torchledger.trainer.step import build_step, example_batch

RECIPE = Recipe(batch_size=2, sequence_length=8, num_tokens=1600, optimizer=OptimizerSpec(learning_rate=1e-2))


@pytest.fixture
def step(tiny):
    """A model after one update."""
    step = build_step(tiny, RECIPE)
    step(example_batch(RECIPE), 0)
    return step


def manifest(step, number):
    return Manifest(number, Identity(step.model.spec, RECIPE, {}, numerics(torch.device("cpu"))), {})


def save(saver, step, number, **extra):
    saver.save(step.model, step.optimizer, manifest(step, number), **extra)


def steps(folder):
    return [number for number, _ in checkpoints(folder)]


def test_permanent_checkpoints_stay(step, tmp_path):
    """Of ten with keep 2 and every fourth permanent: 4 and 8 for ever, 9 and 10 as the newest."""
    saver = Saver(tmp_path, keep=2, permanent_interval=4)
    for number in range(1, 11):
        save(saver, step, number)
    assert steps(tmp_path) == [10, 9, 8, 4]


def test_permanent_is_written_down(step, tmp_path):
    """A saver that makes no permanent ones still leaves those that are there, and deletes what is too many."""
    saver = Saver(tmp_path, keep=9, permanent_interval=2)
    for number in range(1, 6):
        save(saver, step, number)
    Saver(tmp_path, keep=1)
    assert steps(tmp_path) == [5, 4, 2]


def test_saving_beside_training_has_the_state_of_its_moment(step, tmp_path):
    """Weights that change while a checkpoint is written are not in it; it is as if it had been written at once."""
    Saver(tmp_path / "now", keep=1).save(step.model, step.optimizer, manifest(step, 1))
    saver = Saver(tmp_path / "beside", keep=1, asynchronous=True)
    save(saver, step, 1)
    with torch.no_grad():
        step.model.head.weight.zero_()
    (saved,) = saver.wait()
    saver.close()
    for name in ("weights.safetensors", "optimizer.safetensors", "manifest.json"):
        assert (saved.path / name).read_bytes() == (tmp_path / "now" / "step-00000001" / name).read_bytes()


def test_saving_beside_training_does_not_wait_for_the_disk(step, tmp_path, monkeypatch):
    """While the disk is stuck `save` has come back and nothing is told; the next one waits: one copy is held."""
    stuck, write = threading.Event(), saving.write_checkpoint

    def slow(*args, **options):
        assert stuck.wait(60)
        return write(*args, **options)

    monkeypatch.setattr(saving, "write_checkpoint", slow)
    saver = Saver(tmp_path, keep=2, asynchronous=True)
    save(saver, step, 1)
    assert saver.finished() == []
    assert steps(tmp_path) == []
    stuck.set()
    save(saver, step, 2)
    assert [saved.step for saved in saver.wait()] == [1, 2]
    saver.close()


def test_a_disk_that_is_full_behind_ones_back_is_told_next(step, tmp_path, monkeypatch):
    """What fails in the thread comes up when something is asked of the saver; the earlier checkpoint is whole."""
    saver = Saver(tmp_path, keep=2, asynchronous=True)
    save(saver, step, 1)
    saver.wait()

    def full(*_args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(stored, "write_tensors", full)
    save(saver, step, 2)
    with pytest.raises(CheckpointError, match=r"No space left on device; the previous checkpoint .*00000001 is whole"):
        saver.wait()
    monkeypatch.undo()
    save(saver, step, 3)
    assert [saved.step for saved in saver.wait()] == [3]
    saver.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000001", "step-00000003"]


def test_a_folder_that_may_only_be_read_is_told(step, tmp_path, monkeypatch):
    """A read-only file system: the system's words, and which checkpoint is whole."""
    save(Saver(tmp_path, keep=2), step, 1)

    def refused(*_args, **_options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("pathlib.Path.mkdir", refused)
    with pytest.raises(CheckpointError, match=r"Read-only file system; the previous checkpoint .*00000001 is whole"):
        save(Saver(tmp_path, keep=2), step, 2)


def test_further_tensors_come_back(step, tmp_path):
    """What goes on from step to step beside model and optimizer (a loss scale) is stored under its name."""
    saver = Saver(tmp_path, keep=1)
    save(saver, step, 1, extra={"scale": torch.tensor(65536.0), "good_steps": torch.tensor(7)})
    path = latest_checkpoint(tmp_path)
    read = load_extra(path, Manifest.read(path))
    assert {name: (tensor.item(), tensor.dtype) for name, tensor in read.items()} == {
        "scale": (65536.0, torch.float32),
        "good_steps": (7, torch.int64),
    }


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_run_gives_the_same_bits_either_way(config, run, tmp_path, asynchronous, one_thread):
    """Beside training or not: the same losses and bytes; each `Saved` comes once, the last before the end."""
    config = replace(config, async_checkpoint=asynchronous, permanent_interval=3)
    whole, events = run(replace(config, async_checkpoint=False), tmp_path / "whole")
    folder, other = run(config, tmp_path / "other")
    losses = [[e.loss for e in each if type(e).__name__ == "Step"] for each in (events, other)]
    assert losses[0] == losses[1]
    assert [e.step for e in other if type(e).__name__ == "Saved"] == [2, 3, 4, 6, 8]
    assert type(other[-1]).__name__ == "Finished"
    assert other[-1].checkpoint == folder.checkpoints / "step-00000008"
    assert steps(folder.checkpoints) == [8, 6, 3]  # 3 and 6 are permanent, 8 and 6 the newest two
    last = "step-00000008/optimizer.safetensors"
    assert (folder.checkpoints / last).read_bytes() == (whole.checkpoints / last).read_bytes()


def _die_after(count):
    """From now on, let this process make `count` more of the calls that change the disk, then die as by SIGKILL."""
    left = [count]

    def counted(call):
        def wrapper(*args, **options):
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return call(*args, **options)

        return wrapper

    import pathlib
    import shutil

    for owner, name in ((os, "fsync"), (pathlib.Path, "mkdir"), (pathlib.Path, "replace"), (pathlib.Path, "rename")):
        setattr(owner, name, counted(getattr(owner, name)))
    shutil.rmtree = counted(shutil.rmtree)
    stored.write_tensors = counted(stored.write_tensors)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the child saves, which takes no lock, and dies
@pytest.mark.parametrize("replaced", [False, True], ids=["a new step", "a step again"])
def test_killed_between_any_two_calls_a_checkpoint_is_whole_or_not_there(step, tmp_path, replaced):
    """Dead before any call that changes the disk: the newest checkpoint is the old one or the new one, and loads.

    The next saver clears what is left, and saving works again.
    """
    other = build_step(step.model.spec, replace(RECIPE, seed=99))
    number = 1 if replaced else 2
    finished = 0
    for count in range(40):
        folder = tmp_path / str(count)
        Saver(folder, keep=1).save(step.model, step.optimizer, manifest(step, 1))
        child = os.fork()
        if child == 0:
            _die_after(count)
            save(Saver(folder, keep=1), step, number)
            os._exit(0)
        finished += os.waitpid(child, 0)[1] == 0
        saver = Saver(folder, keep=1)  # as the next start does
        path = latest_checkpoint(folder)
        assert path is not None, count
        assert path.name in {"step-00000001", f"step-{number:08d}"}
        load_optimizer(path, load_weights(path, other.model), other.model, other.optimizer)
        save(saver, step, 3)
        assert [each.name for each in folder.iterdir()] == ["step-00000003"]
        if finished:
            break
    assert finished == 1, "the last child must have got through, else not every moment was tried"
    assert count > 8


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_killed_at_any_byte_a_run_goes_on(config, tmp_path, one_thread):
    """A child that is killed after so many bytes of a checkpoint leaves the one before, from which training goes on."""
    setup = resolve(config)
    for limit in (0, 1, 7, 500, 5_000, 60_000):
        folder = new_run(setup, tmp_path / str(limit))
        child = os.fork()
        if child == 0:
            _die_at_byte(stored, limit)
            for _ in train(setup, folder):
                pass
            os._exit(0)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        assert latest_checkpoint(folder.checkpoints).name == "step-00000002"
        events = list(train(setup, folder, checkpoint=latest_checkpoint(folder.checkpoints)))
        assert type(events[-1]).__name__ == "Finished"
        assert events[0].first_step == 2


def _die_at_byte(module, limit):
    """In the second checkpoint, write `limit` bytes of the first file, then die."""
    write, calls = module.write_tensors, []

    def cut(path, tensors):
        calls.append(path)
        if len(calls) <= 2:  # both files of the first checkpoint
            return write(path, tensors)
        write(path, tensors)
        os.truncate(path, min(limit, path.stat().st_size))
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    module.write_tensors = cut
