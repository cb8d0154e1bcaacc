import json
import os
import signal
import subprocess
import sys

import pytest

from torchledger.trainer.locks import Taken, alone, require_open

HOLDS = """
import sys, time
from pathlib import Path
from torchledger.trainer.locks import alone
with alone(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """A process of its own that holds the lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path / "lock")], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_who_holds_it_is_told(tmp_path, holder):
    """The second is refused with the first's number, host and time."""
    with pytest.raises(Taken) as caught, alone(tmp_path / "lock"):
        pass
    assert caught.value.holder.startswith(f"process {holder.pid} on {os.uname().nodename}, since 20")


def test_looking_takes_nothing(tmp_path, holder):
    """Who only looks is told the same, holds nothing afterwards, and makes no file."""
    with pytest.raises(Taken) as caught:
        require_open(tmp_path / "lock")
    assert caught.value.holder.startswith(f"process {holder.pid} on")
    holder.kill()
    holder.wait()
    require_open(tmp_path / "lock")
    with alone(tmp_path / "lock"):
        pass
    require_open(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_killed_process_holds_nothing(tmp_path, holder):
    """What it wrote stays in the file and keeps nobody out; the next one writes its own."""
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert json.loads((tmp_path / "lock").read_text())["process_id"] == holder.pid
    with alone(tmp_path / "lock"):
        assert json.loads((tmp_path / "lock").read_text())["process_id"] == os.getpid()
    assert (tmp_path / "lock").read_text() == ""


@pytest.mark.parametrize("leave", [True, False])
def test_the_file_stays_where_it_shall(tmp_path, leave):
    """A lock that shall leave nothing takes its file away, and can be taken again."""
    for _ in range(2):
        with alone(tmp_path / "lock", leave=leave):
            assert (tmp_path / "lock").exists()
        assert (tmp_path / "lock").exists() == leave


def test_a_note_that_makes_no_sense_is_no_holder(tmp_path, holder):
    """Who holds it is then not known; that it is held is."""
    (tmp_path / "lock").write_text("{torn")
    with pytest.raises(Taken) as caught, alone(tmp_path / "lock"):
        pass
    assert caught.value.holder == ""


def test_an_error_inside_lets_go(tmp_path):
    """What is raised inside comes out, and the lock is free."""
    with pytest.raises(KeyError), alone(tmp_path / "lock"):
        raise KeyError
    with alone(tmp_path / "lock"):
        pass
