"""The command's first fraction of a second is told of like any other."""

import subprocess
import sys

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


def test_the_entry_gives_back_the_exit_code(monkeypatch):
    """Whatever the command line comes to, the process comes to."""
    monkeypatch.setattr(command_line, "main", lambda: 3)
    assert entry.main() == 3
