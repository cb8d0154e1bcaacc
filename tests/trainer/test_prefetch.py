import gc
import threading

import pytest

from torchledger.trainer.prefetch import Prefetch


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "torchledger-prefetch"]


def test_items_in_order():
    """Items come in order, from the first number asked for."""
    prefetch = Prefetch(lambda n: n * n, 3)
    assert [prefetch.get() for _ in range(5)] == [9, 16, 25, 36, 49]
    prefetch.close()


def test_no_further_ahead_than_told():
    """With a depth of 3, the thread makes three items and waits; each one taken lets it make one more."""
    made, made_three, made_four = [], threading.Event(), threading.Event()

    def load(n):
        made.append(n)
        if n == 2:
            made_three.set()
        if n == 3:
            made_four.set()
        return n

    prefetch = Prefetch(load, 0, depth=3)
    assert made_three.wait(10)
    assert not made_four.is_set()
    prefetch.get()
    assert made_four.wait(10)
    prefetch.close()
    assert made == [0, 1, 2, 3]


def test_error_comes_at_its_turn():
    """An exception reaches the caller after the items before it, and ends the thread."""

    def load(n):
        if n == 2:
            raise ValueError("no item 2")
        return n

    prefetch = Prefetch(load, 0, depth=8)
    assert [prefetch.get(), prefetch.get()] == [0, 1]
    with pytest.raises(ValueError, match="no item 2"):
        prefetch.get()
    assert threads() == []


def test_close_ends_the_thread():
    """Closing ends the thread, at once and also twice."""
    prefetch = Prefetch(lambda n: n, 0)
    assert len(threads()) == 1
    prefetch.close()
    prefetch.close()
    assert threads() == []


def test_close_while_loading():
    """Closing waits for the item being made, so that nothing is used after it is closed."""
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()

    def load(n):
        entered.set()
        leave.wait(10)
        left.set()
        return n

    prefetch = Prefetch(load, 0)
    assert entered.wait(10)
    threading.Timer(0.05, leave.set).start()
    prefetch.close()
    assert left.is_set()
    assert threads() == []


def test_an_abandoned_one_is_collected():
    """A prefetcher that nobody holds any more ends its thread by itself."""
    prefetch = Prefetch(lambda n: n, 0)
    prefetch.get()
    del prefetch
    gc.collect()
    assert threads() == []
