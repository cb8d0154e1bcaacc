import inspect
import subprocess
import sys

import pytest

from torchledger import trainer


def test_every_name_is_there_and_means_itself():
    """All public names load, and none is hidden behind a module of the same name."""
    assert [name for name in trainer.__all__ if inspect.ismodule(getattr(trainer, name))] == []


def test_an_unknown_name_is_an_attribute_error():
    """A wrong name fails as it does in any module."""
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        trainer.nothing  # noqa: B018  # looking is the test


def test_configurations_and_folders_need_no_torch():
    """What a run asks for and leaves behind is read without loading torch."""
    code = (
        "import sys; from torchledger.trainer import RunConfig, RunFolder, read_metrics, Saved, CheckpointError\n"
        "print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
