"""Make the next items in the background while the current one is used, in order, with an end that leaves no thread."""

import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

__all__ = ["Prefetch"]

Item = TypeVar("Item")


class Prefetch(Generic[Item]):
    """Calls `load(start)`, `load(start + 1)`, ... in one daemon thread, at most `depth` items ahead.

    An exception in `load` is raised by `get` at its item's turn. `close` ends the thread and waits for it; so does the
    garbage collector, and the interpreter's exit.
    """

    def __init__(self, load: Callable[[int], Item], start: int, *, depth: int = 2) -> None:
        assert depth >= 1
        self._items: SimpleQueue[Item | _Failure] = SimpleQueue()
        # Each ticket permits one load. Two SimpleQueues, written in C, cost less than one bounded Queue, which is not.
        self._tickets: SimpleQueue[bool] = SimpleQueue()
        for _ in range(depth):
            self._tickets.put(True)
        stop = threading.Event()
        # The thread must not know `self`, or an abandoned Prefetch would live as long as the thread.
        self._thread = threading.Thread(
            target=_work, args=(load, start, self._items, self._tickets, stop), name="torchledger-prefetch", daemon=True
        )
        self._end = weakref.finalize(self, _end, self._thread, self._tickets, stop)
        self._thread.start()

    def get(self) -> Item:
        """The next item, waiting for it if need be; after an exception, there is no next."""
        assert self._end.alive, "get after close"
        item = self._items.get()
        self._tickets.put(True)
        if isinstance(item, _Failure):
            self.close()
            raise item.error
        return item

    def close(self) -> None:
        """End the thread and wait until it has ended; closing twice is fine."""
        self._end()


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


def _work(
    load: Callable[[int], Item],
    start: int,
    items: "SimpleQueue[Item | _Failure]",
    tickets: "SimpleQueue[bool]",
    stop: threading.Event,
) -> None:
    n = start
    while tickets.get() and not stop.is_set():
        try:
            items.put(load(n))
        except BaseException as error:  # noqa: BLE001  whatever it is, the thread that asked for the item must see it
            items.put(_Failure(error))
            return
        n += 1


def _end(thread: threading.Thread, tickets: "SimpleQueue[bool]", stop: threading.Event) -> None:
    stop.set()
    tickets.put(False)
    if thread is not threading.current_thread():  # the collector may run in that very thread
        thread.join()
