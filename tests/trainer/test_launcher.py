import os
import signal
import subprocess
import sys
import time

from torchledger.trainer.launcher import following

ORPHAN = """
import os, signal, sys, time
from torchledger.trainer.launcher import following
child = os.fork()
if child == 0:
    signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"asked to end"), os._exit(143)))
    with following(interval_s=0.02):
        os.write(1, b"begun ")
        time.sleep(30)
    os._exit(1)
time.sleep(60)
"""


def test_the_end_of_the_parent_is_a_request_to_terminate():
    """A process whose parent is killed by SIGKILL gets SIGTERM, whatever it waits for."""
    parent = subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE)
    assert os.read(parent.stdout.fileno(), 6) == b"begun "
    parent.send_signal(signal.SIGKILL)
    told, _ = parent.communicate(timeout=20)  # until the orphan too has closed its end
    assert told == b"asked to end"


def test_while_the_parent_lives_nothing_happens():
    """Many looks later nobody was asked to end, and the thread is gone with the block."""
    called = []
    with following(lambda: called.append(1), interval_s=0.001):
        time.sleep(0.05)
    assert called == []
