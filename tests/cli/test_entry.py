"""The command's first fraction of a second is told of like any other."""

import os
import signal
import subprocess
import sys

import pytest

import torchledger.__main__ as entry
from torchledger.cli import main as command_line

INTERRUPTED_WHILE_LOADING = """
import sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupts())
from torchledger.__main__ import main
sys.exit(main())
"""


def test_ctrl_c_while_modules_load_is_no_traceback():
    """One word and 130, as at any later moment."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_WHILE_LOADING], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


SWALLOWED_WHILE_LOADING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job has begun deaf
class Swallows:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                pass
sys.meta_path.insert(0, Swallows())
from torchledger.__main__ import main
sys.argv = ["torchledger", "--version"]
sys.exit(main())
"""


@pytest.mark.parametrize(("rank", "told"), [("", "interrupted\n"), ("0", "interrupted\n"), ("1", "")])
def test_ctrl_c_is_not_lost_in_a_module_that_swallows_it_as_it_loads(rank, told):
    """The start of torch, in C, catches the exception and goes on: the process ends all the same, one rank tells."""
    named = {"RANK": rank} if rank else {}
    variables = {name: value for name, value in os.environ.items() if name != "RANK"} | named
    words = [sys.executable, "-c", SWALLOWED_WHILE_LOADING]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=variables)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", told)


def test_ctrl_c_while_nothing_loads_is_an_exception_as_ever(monkeypatch):
    """A command that is at work puts away what it has begun; afterwards the signal is heard by whom it was before."""

    def work():
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        return 5

    monkeypatch.setattr(command_line, "main", work)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert entry.main() == 5
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_that_is_ignored_stays_so(monkeypatch):
    """A shell's background job is begun deaf to Ctrl-C, and whoever has a handler of their own keeps it."""
    monkeypatch.setattr(command_line, "main", lambda: signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert entry.main() is True
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_nothing_stands_before_the_entry_that_takes_time_to_load():
    """Until it is reached Ctrl-C is a traceback: of the package itself only `__future__` loads."""
    code = "import sys; before = {*sys.modules}; import torchledger; print(*sorted({*sys.modules} - before))"
    words = [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}; {code}"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["__future__", "torchledger"]


def test_the_entry_gives_back_the_exit_code(monkeypatch):
    """Whatever the command line comes to, the process comes to."""
    monkeypatch.setattr(command_line, "main", lambda: 3)
    assert entry.main() == 3
