from dataclasses import replace

import pytest

from torchledger.trainer.errors import CheckpointMismatch, ResumeRefused
from torchledger.trainer.loop import resume_point
from torchledger.trainer.resume import resume_changes
from torchledger.trainer.setup import resolve

pytestmark = pytest.mark.usefixtures("one_thread")


def test_an_unchanged_run_may_go_on(config, run):
    """The run's own configuration changes nothing."""
    folder, _ = run(config)
    assert resume_changes(resume_point(folder), resolve(folder.config())) == ()


def test_a_change_is_refused_or_given_back(config, run):
    """Another learning rate is named, with how to allow it; allowed, it is the answer."""
    folder, _ = run(config)
    optimizer = replace(config.recipe.optimizer, learning_rate=0.5)
    changed = resolve(replace(config, recipe=replace(config.recipe, optimizer=optimizer)))
    with pytest.raises(ResumeRefused, match=r"--allow-changes(.|\n)*recipe\.optimizer\.learning_rate: .* 0\.5 now"):
        resume_changes(resume_point(folder), changed)
    allowed = resume_changes(resume_point(folder), changed, allow_changes=True)
    assert [change.field for change in allowed] == ["recipe.optimizer.learning_rate"]


def test_another_model_is_refused_whatever_is_allowed(config, run, tiny):
    """Weights of another model cannot be taken over."""
    folder, _ = run(config)
    other = resolve(replace(config, model=replace(tiny, num_layers=3)))
    with pytest.raises(CheckpointMismatch, match=r"spec\.num_layers: 2 in the checkpoint, 3 now"):
        resume_changes(resume_point(folder), other, allow_changes=True)
