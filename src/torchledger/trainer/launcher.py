"""The process that started this one: when it is gone, nobody is left to stop us, and we stop by ourselves.

`torchrun` passes signals on to its ranks and ends them when one fails. Killed itself (SIGKILL, no memory left), it does
neither: its ranks would go on for ever, holding their devices, unseen.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

__all__ = ["following"]

INTERVAL_S = 1.0


def _terminate() -> None:
    """SIGTERM to ourselves, which training takes for what it is: finish the step, save, end."""
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def following(on_loss: Callable[[], None] = _terminate, *, interval_s: float = INTERVAL_S) -> Iterator[None]:
    """While inside, the end of the process that started this one is noticed.

    A process whose parent has ended gets another one. A program that was started in the background for good (`nohup`,
    a container's first process) has that other parent from the beginning, and none to lose.

    Args:
        on_loss: called once, in a thread, when the parent is gone; by default this process is asked to terminate.
        interval_s: seconds between two looks.
    """
    parent, over = os.getppid(), threading.Event()

    def watch() -> None:
        while not over.wait(interval_s):
            if os.getppid() != parent:
                on_loss()
                return

    thread = threading.Thread(target=watch, name="torchledger-launcher", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
