import os
import threading
import time
from pathlib import Path

import pytest

from torchledger.trainer.process_group import wait_for_connections


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="only Linux tells what threads do")
def test_what_gloo_still_holds_is_let_go_before_a_process_ends():
    """A thread of gloo's that is busy is waited for, one that waits is not."""
    begun, ended = threading.Event(), []

    def send():
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("pt_gloo_runloop")
        begun.set()
        end = time.thread_time() + 0.1
        while time.thread_time() < end:
            os.urandom(1 << 20)  # without holding Python
        ended.append(True)
        stop.wait()

    stop = threading.Event()
    thread = threading.Thread(target=send)
    thread.start()
    begun.wait()
    wait_for_connections()
    assert ended
    stop.set()
    thread.join()
