import io
from pathlib import Path

import pytest

from torchledger.cli.live import Live, step_line
from torchledger.trainer.counters import Counters
from torchledger.trainer.events import Answered, Evaluated, Finished, Sampled, Saved, Spiked, Started, Step, Warned


def step(number, **changes):
    figures = {
        "step": number,
        "loss": 4.3125,
        "learning_rate": 3e-4,
        "gradient_norm": 1.0,
        "seconds": 0.5,
        "data_wait_s": 0.0,
        "num_tokens": 4600,
        "tokens_per_s": 9200.0,
        "mfu": 0.41,
        "hfu": None,
        "resident_bytes": 2**30,
        "peak_resident_bytes": 2**30,
        "device_peak_bytes": None,
        "epoch": 0.5,
        "warm_up": False,
        "remaining_s": 92.0,
    }
    return Step(**{**figures, **changes})


def drawn(*events, on_terminal, every=10):
    stream = io.StringIO()
    live = Live(400, every=every, stream=stream, on_terminal=on_terminal)
    for event in events:
        live.show(event)
    live.close()
    return stream.getvalue()


def test_a_step_in_one_line():
    """Step, loss, learning rate, tokens per second, MFU, share of waiting, memory and time left, counted from one."""
    assert step_line(step(119, data_wait_s=0.05), 400) == (
        "step 120/400  loss 4.3125  lr 3.00e-04  9.2k tok/s  MFU 41 %  data-wait 10 %  1 GiB  1m 32s left"
    )


def test_of_several_devices_both_rates_are_named():
    """Tokens per second of four devices together and of each: 9,200 and 2,300."""
    assert "9.2k tok/s (2.3k a device)" in step_line(step(0), 400, num_devices=4)
    started = Started(Path("runs/a"), 1, 400, 0, 8192, 1.5, None, (), num_devices=4)
    assert "(2.3k a device)" in drawn(started, step(0), on_terminal=False)


def test_an_mfu_above_the_peak_is_marked():
    """104 % cannot be, and does not look as if it could."""
    assert "MFU 104 %?" in step_line(step(0, mfu=1.04), 400)


def test_the_convention_of_mfu_is_told_at_the_start():
    """What is counted, and what it is held against."""
    started = Started(Path("runs/a"), 1, 400, 0, 8192, 1.5, None, (), "MFU counts contractions; of 2 TFLOP/s")
    assert "  MFU counts contractions; of 2 TFLOP/s\n" in drawn(started, on_terminal=False)


def test_without_a_peak_there_is_no_mfu():
    """An unknown MFU is left out, not shown as zero."""
    assert "MFU" not in step_line(step(0, mfu=None), 400)


def test_on_a_gpu_its_memory_counts():
    """Where tensors are on a device, the device's peak is shown instead of the process's."""
    assert "3 GiB" in step_line(step(0, device_peak_bytes=3 * 2**30), 400)


def test_a_terminal_is_drawn_over(monkeypatch):
    """Steps overwrite each other; the last one stays and ends its line."""
    monkeypatch.setenv("COLUMNS", "100")
    text = drawn(step(0), step(1), on_terminal=True)
    assert text.count("\n") == 1
    assert text.endswith("left\n")


def test_quick_steps_are_not_all_drawn():
    """A thousand steps in no time are some lines over each other, and the one that stays is the last step's."""
    text = drawn(*(step(n) for n in range(1000)), on_terminal=True)
    lines = text.split("\r\x1b[K")
    assert "step 1000/400" in lines[-1]
    assert len(lines) < 100


def test_a_step_soon_after_another_event_is_the_last_line():
    """A run that is stopped right after it saved leaves the step that it stopped at, not the one before."""
    text = drawn(step(7), Saved(8, Path("c/8"), 1024, 0.1), step(8), on_terminal=True)
    assert text.splitlines()[-1].startswith("\x1b[Kstep   9/400")
    assert text.endswith("\n")


def test_a_log_has_a_line_now_and_then():
    """In a log every tenth step has its line, and the very last one."""
    text = drawn(*(step(n) for n in range(21)), step(399), on_terminal=False)
    assert [line.split()[1] for line in text.splitlines()] == ["1/400", "11/400", "21/400", "400/400"]
    assert "\x1b" not in text
    assert "\r" not in text


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        (Started(Path("runs/a"), 5_770_496, 400, 0, 8192, 1.5, None, ("bf16 is faster",)), "5,770,496 parameters"),
        (Started(Path("runs/a"), 1, 400, 100, 8, 1.0, Path("c/100"), ()), "resumed from c/100, training"),
        (Evaluated(100, 3.1234, 5000, 1.0), "validation loss 3.1234"),
        (Saved(100, Path("c/100"), 2**20, 0.1), "saved c/100 (1 MiB"),
        (Sampled(400, "", "def f():", 2.0), "wrote 8 characters"),
        (Answered(100, 200, 0.275, 0.31, 0.25, 3.0), "200 questions, right 27.5 %, for length 31 %, by chance 25 %"),
        (
            Spiked(1200, "gradient norm", 90.0, 1.5, 12.3, Path("c/1100")),
            "90.0000, usually 1.5000 (12 robust deviations); training goes on, the checkpoint before it is c/1100",
        ),
        (Spiked(7, "loss", 9.0, 2.0, 8.0, None), "there is no checkpoint before it"),
        (Warned(0, "the loss is odd"), "warning at step 0: the loss is odd"),
    ],
)
def test_other_events_have_lines_of_their_own(event, shown):
    """What is no step is told on a line that stays, on a terminal and in a log."""
    for on_terminal in (True, False):
        text = drawn(step(0), event, step(1), on_terminal=on_terminal)
        assert any(shown in line for line in text.split("\n"))


def test_assumptions_are_told():
    """What was decided without being asked stands below the start."""
    event = Started(Path("runs/a"), 1, 4, 0, 8, 1.0, None, ("bf16 is faster here",))
    assert "assumes: bf16 is faster here" in drawn(event, on_terminal=False)


def test_the_end_is_not_drawn():
    """The closing table tells the end; the live line only ends."""
    event = Finished(4, 4.1, 2.0, 2.1, 0.5, 10.0, 0.4, 0.3, 0.5, 0.0, 3.0, 2**30, Counters(), Counters(), Path("c/4"))
    assert drawn(event, on_terminal=False) == ""


class Closed(io.StringIO):
    """A stream that nobody reads any more."""

    def write(self, _text):
        """The system's answer."""
        self.tries = getattr(self, "tries", 0) + 1
        raise BrokenPipeError


@pytest.mark.parametrize("on_terminal", [True, False])
def test_nobody_watching_stops_nothing(on_terminal):
    """A closed pipe or a terminal that hung up is no error of the run: what follows is not drawn."""
    stream = Closed()
    live = Live(400, every=1, stream=stream, on_terminal=on_terminal)
    live.show(step(0))
    tries = stream.tries
    live.show(step(1))
    live.close()
    assert stream.tries == tries > 0
