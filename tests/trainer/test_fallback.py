import random
import shutil
from dataclasses import replace

import pytest
from watched_runs import losses, names, told

from torchledger.trainer.errors import CheckpointError, ResumeRefused
from torchledger.trainer.fallback import newest_usable, newest_whole
from torchledger.trainer.loop import resume_point, train
from torchledger.trainer.run_folder import RunFolder
from torchledger.trainer.setup import resolve

pytestmark = pytest.mark.usefixtures("one_thread")

FILES = ("manifest.json", "weights.safetensors", "optimizer.safetensors")
NEWEST = "step-00000004"


@pytest.fixture
def stopped(config, run, tmp_path):
    """A run with checkpoints of steps 2 and 4, whose end is gone; and the losses of the whole one."""
    folder, _ = run(replace(config, keep=9, num_steps=6, eval_interval=0), tmp_path / "run")
    whole = losses(folder)
    shutil.rmtree(folder.checkpoints / "step-00000006")
    return folder, whole


def flip(path, place):
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


def going_on(folder):
    """Resume: the events, and what was warned of."""
    setup = resolve(folder.config())
    events = list(train(setup, folder, checkpoint=resume_point(folder)))
    return events, [event.message for event in events if type(event).__name__ == "Warned"]


def places(file, content):
    """Bytes of every class: of a manifest any; of tensors the header's length, the header, the data."""
    if file == "manifest.json":
        return [0, len(content) // 3, len(content) - 5]
    header = int.from_bytes(content[:8], "little")
    # not the last of the header, which may be a space that means nothing
    return [0, 6, 8 + header // 2, 8 + header + 1, len(content) - 1]


@pytest.mark.parametrize("file", FILES)
def test_damage_anywhere_gives_way_to_the_checkpoint_before(stopped, tmp_path, file):
    """A bit of any class of bytes, a file cut anywhere, or gone: step 2 takes over, both are named, losses are whole.

    The damaged one is kept under another name, where it is neither counted nor taken for a checkpoint.
    """
    first, whole = stopped
    content = (first.checkpoints / NEWEST / file).read_bytes()
    damages = [lambda path, place=place: flip(path, place) for place in places(file, content)]
    damages += [lambda path, cut=cut: path.write_bytes(content[:cut]) for cut in (0, 9, len(content) // 2)]
    damages += [lambda path: path.unlink()]
    for number, damage in enumerate(damages):
        folder = RunFolder(tmp_path / f"copy-{number}")
        shutil.copytree(first.path, folder.path)
        damage(folder.checkpoints / NEWEST / file)
        events, warned = going_on(folder)
        assert events[0].first_step == 2, number
        assert events[0].resumed_from.name == "step-00000002"
        assert any(NEWEST in each and "going on from" in each and "step-00000002" in each for each in warned), warned
        assert losses(folder) == whole
        assert names(folder.checkpoints) == [f"damaged-{NEWEST}", "step-00000002", NEWEST, "step-00000006"]


def test_any_byte_may_be_the_one(stopped, tmp_path):
    """Twenty random bits of the checkpoint: the run gives the whole run's losses, from whichever checkpoint."""
    first, whole = stopped
    drawn = random.Random(7)
    for number in range(20):
        folder = RunFolder(tmp_path / f"copy-{number}")
        shutil.copytree(first.path, folder.path)
        path = folder.checkpoints / NEWEST / drawn.choice(FILES)
        flip(path, drawn.randrange(path.stat().st_size))
        going_on(folder)
        assert losses(folder) == whole, path


def test_where_all_are_damaged_each_is_named(stopped):
    """Nothing is trained; both checkpoints are named with what is wrong with them, and neither is renamed."""
    folder, _ = stopped
    for name in ("step-00000002", NEWEST):
        path = folder.checkpoints / name / "weights.safetensors"
        flip(path, path.stat().st_size - 1)
    with pytest.raises(CheckpointError, match="begin a new run") as caught:
        going_on(folder)
    assert str(caught.value).count("weights.safetensors is damaged: its checksum of") == 2
    assert names(folder.checkpoints) == ["step-00000002", NEWEST]


def test_where_none_is_whole_each_is_named(stopped):
    """Before anything is loaded: a file too short and a manifest that is gone."""
    folder, _ = stopped
    (folder.checkpoints / "step-00000002" / "manifest.json").unlink()
    (folder.checkpoints / NEWEST / "weights.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="no whole checkpoint") as caught:
        newest_whole(folder.checkpoints)
    first, second = str(caught.value).splitlines()[1:]
    assert f"{NEWEST} is not whole: weights.safetensors has 0 bytes" in first
    assert "step-00000002 (manifest.json is missing)" in second


def test_a_refusal_is_no_damage(stopped):
    """A run that has changed is refused as it is, and no older checkpoint is tried in its place."""
    folder, _ = stopped
    tried = []

    def look(path):
        tried.append(path.name)
        raise ResumeRefused("changed")

    with pytest.raises(ResumeRefused):
        newest_usable(folder.checkpoints / NEWEST, look, lambda path: path)
    assert tried == [NEWEST]


def test_what_one_rank_cannot_read_none_takes(stopped):
    """Where another rank found the newest damaged, this one goes on from the older with it."""
    folder, _ = stopped
    answers = iter([False, True, False, False])  # after looking and after loading, of each in turn
    usable = newest_usable(folder.checkpoints / NEWEST, lambda _: None, lambda path: path.name, lambda _: next(answers))
    assert usable.loaded == "step-00000002"
    assert [(each.path.name, each.reason) for each in usable.damaged] == [(NEWEST, "another rank cannot read it")]


def test_a_whole_newest_is_taken_without_a_word(stopped):
    """Nothing is renamed, nothing is warned of."""
    folder, whole = stopped
    events, warned = going_on(folder)
    assert (events[0].first_step, warned) == (4, [])
    assert "st4" in told(events)
    assert losses(folder) == whole
