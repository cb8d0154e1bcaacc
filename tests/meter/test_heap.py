"""Whether freed memory stays, seen from outside: resident memory of a fresh process."""

import platform
import subprocess
import sys

import pytest

from torchledger.meter import heap

SCRIPT = """
import sys, torch
from torchledger.meter import resident_bytes
from torchledger.meter.heap import keep_heap, kept_heap
said = keep_heap() if sys.argv[1] == "keep" else ""
assert kept_heap() == said
before = resident_bytes()
block = torch.ones(64 * 2**20)  # 256 MiB
del block
print(resident_bytes() - before, bool(said))
"""


def _left(how):
    done = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True)
    left_bytes, said = done.stdout.split()
    return int(left_bytes), said == "True"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_freed_memory_stays_when_it_is_told_to():
    """256 MiB taken and freed are still resident afterwards; without it they are given back."""
    kept, said = _left("keep")
    assert said
    assert kept > 200 * 2**20
    given_back, _ = _left("leave")
    assert given_back < 50 * 2**20


def test_another_c_library_is_left_alone(monkeypatch):
    """Without glibc nothing is done, and nothing is claimed."""
    monkeypatch.setattr(heap.platform, "libc_ver", lambda: ("", ""))
    assert heap.keep_heap() == ""
