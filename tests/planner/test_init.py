"""The planner's public names: written by hand, documented, loaded when they are needed."""

import subprocess
import sys
from pathlib import Path

import pytest

from torchledger import planner


@pytest.mark.parametrize("name", planner.__all__)
def test_every_public_name_is_there_and_documented(name):
    """Each name can be used, and what is ours and can be called has a docstring."""
    value = getattr(planner, name)
    if callable(value):
        assert value.__doc__, name


def test_no_public_name_is_a_files():
    """A name that is also a file's would mean either, after which was imported first."""
    files = {path.stem for path in Path(planner.__file__).parent.glob("*.py")}
    assert not files & set(planner.__all__)


def test_every_file_stands_in_the_map():
    """The package's docstring names every file of it, singly or with its kin (`search*.py`)."""
    stems = [path.stem for path in Path(planner.__file__).parent.glob("*.py") if path.stem != "__init__"]
    map_ = planner.__doc__
    missing = [stem for stem in stems if f"{stem}.py" not in map_ and f"{stem.partition('_')[0]}*.py" not in map_]
    assert missing == []


def test_an_unknown_name_is_an_attribute_error():
    """A misspelt name fails as on any module."""
    with pytest.raises(AttributeError, match="no attribute 'Estimater'"):
        planner.Estimater  # noqa: B018 - the access is the test


def test_the_napkin_loads_no_layouts():
    """Importing the planner loads neither formulas nor search; a name of layouts loads what it needs."""
    code = (
        "import sys; from torchledger import planner;"
        "late = {'formula', 'planner.estimator', 'planner.search', 'planner.stack', 'planner.measured'};"
        "late = {f'torchledger.{each}' for each in late};"
        "assert not late & sys.modules.keys(), late & sys.modules.keys();"
        "planner.Estimator;"
        "assert 'torchledger.planner.estimator' in sys.modules;"
        "assert 'torchledger.planner.search' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
