"""Setting the number of threads sets it, and leaves fused attention as fast as a fresh process has it."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torchledger.meter import threads

LIBRARY = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"


def _states(script: str) -> list[str]:
    """What a process of its own prints: the count is the process's."""
    code = "import ctypes, torch\nfrom torchledger.meter import set_threads\n" + script
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()


def test_the_count_is_set():
    assert _states(
        "set_threads(1); print(torch.get_num_threads()); set_threads(2); print(torch.get_num_threads())"
    ) == [
        "1",
        "2",
    ]


def test_mkl_is_as_in_a_fresh_process():
    """After `torch.set_num_threads` it has a count of its own and is not dynamic, in other threads too."""
    try:
        library = ctypes.CDLL(str(LIBRARY))
        assert library.mkl_serv_get_dynamic
    except (OSError, AttributeError):
        pytest.skip("torch without MKL, or with one that does not tell")
    ask = f"""
import threading
library = ctypes.CDLL({str(LIBRARY)!r})
def tell():
    torch.ones(999, 999) + torch.ones(999, 999) @ torch.ones(999, 999)
    print(library.mkl_serv_get_dynamic(), library.MKL_Get_Max_Threads())
def told():
    tell()
    other = threading.Thread(target=tell)
    other.start()
    other.join()
"""
    is_dynamic, count, *_ = fresh = _states(ask + "told()")
    one = _states(ask + "set_threads(1)\ntold()")  # what another thread takes is its own affair
    assert (one[:3], fresh[::2]) == ([is_dynamic, "1", is_dynamic], [is_dynamic] * 2)
    assert _states(ask + f"set_threads({int(count) + 1})\nset_threads({count})\ntold()") == fresh


def test_products_take_the_threads_that_were_set():
    """CPU seconds are seconds on one thread; on two they are nearly twice as many."""
    script = """
import time
a = torch.ones(1500, 1500)
def share():
    a @ a
    begin = time.perf_counter(), time.process_time()
    for _ in range(4): a @ a
    return (time.process_time() - begin[1]) / (time.perf_counter() - begin[0])
set_threads(1)
print(max(share() for _ in range(3)))
"""
    assert float(_states(script)[0]) < 1.2


def test_the_same_count_changes_nothing(monkeypatch):
    """Torch is not told the count that it has already."""
    told = []
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    threads.set_threads(torch.get_num_threads())
    assert told == []


def test_without_an_openmp_that_can_be_asked_torch_is(monkeypatch):
    def fail(path):
        raise OSError(path)

    called = []
    monkeypatch.setattr(torch, "set_num_threads", called.append)
    monkeypatch.setattr(ctypes, "CDLL", fail)
    threads.set_threads(torch.get_num_threads() + 1)
    assert called == [torch.get_num_threads() + 1]
