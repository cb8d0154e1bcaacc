import os
import signal
import threading

import pytest

from torchledger.trainer.interrupts import Interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_is_only_noted(number):
    """A signal inside becomes a number to read; afterwards the handlers are as before."""
    outside = signal.signal(number, signal.default_int_handler)  # the tests themselves may run under `nohup`
    try:
        with Interrupts() as interrupts:
            assert interrupts.received is None
            os.kill(os.getpid(), number)
            assert interrupts.received == number
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, outside)


def test_a_hang_up_that_is_ignored_stays_so():
    """Who starts a run with `nohup` wants it to outlive the terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupts.received is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_second_ctrl_c_raises():
    """Who presses Ctrl-C twice does not want to wait."""
    with Interrupts():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_in_another_thread_nothing_is_installed():
    """Python allows handlers in the main thread only; elsewhere nothing is noted and nothing fails."""
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def enter():
        with Interrupts() as interrupts:
            seen.append((signal.getsignal(signal.SIGINT) is before, interrupts.received))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [(True, None)]


def test_of_several_processes_all_act_on_what_they_agree_on():
    """A noted signal is not acted on before the others know; its echo within ten seconds is the same one."""
    with Interrupts(shared=True) as interrupts:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert (interrupts.noted, interrupts.received) == (signal.SIGTERM, None)
        interrupts.agree(0)
        assert interrupts.received is None
        interrupts.agree(signal.SIGTERM)
        interrupts.agree(0)
        assert interrupts.received == signal.SIGTERM
