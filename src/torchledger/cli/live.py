"""The live line of a training run: drawn over itself on a terminal, one line every few steps in a log. On stderr."""

from __future__ import annotations

import contextlib
import math
import shutil
import sys
import time
from typing import TYPE_CHECKING, TextIO

from torchledger.units import format_bytes, format_count, format_duration, format_number, format_percent, group_digits

if TYPE_CHECKING:
    from torchledger.trainer.events import Answered, Evaluated, Event, Sampled, Saved, Spiked, Started, Step

_ERASE = "\r\x1b[K"
_REDRAW_S = 0.05  # no eye follows more than twenty lines a second, and a small model takes more steps than that


class Live:
    """Draws the events of a run as they happen.

    Args:
        num_steps: steps of the whole run.
        every: in a log, steps between two lines.
        stream: where to draw; stderr where nothing is given.
        on_terminal: whether lines may be overwritten; nothing asks the stream.
    """

    def __init__(
        self, num_steps: int, *, every: int = 10, stream: TextIO | None = None, on_terminal: bool | None = None
    ) -> None:
        self._num_steps = num_steps
        self._every = max(1, every)
        self._stream = stream or sys.stderr
        self._overwrites = self._stream.isatty() if on_terminal is None else on_terminal
        self._is_drawn = False
        self._drawn_at = -math.inf
        self._late: Step | None = None  # came too soon after the one that is drawn
        self._is_read = True
        self._num_devices = 1

    def show(self, event: Event) -> None:
        """Draw one event. Where nobody can read any more (a closed pipe, a terminal that hung up), nothing is drawn."""
        if not self._is_read:
            return
        try:
            self._draw(event)
        except OSError:  # training is worth more than being watched
            self._is_read = False

    def _draw(self, event: Event) -> None:
        # by name: the classes stand in a room that loads torch, and a log reader needs none of it
        match type(event).__name__:
            case "Step":
                self._step(event)  # type: ignore[arg-type]
            case "Started":
                self._num_devices = event.num_devices  # type: ignore[union-attr]
                self._line(_started(event))  # type: ignore[arg-type]
            case "Evaluated":
                self._line(_evaluated(event))  # type: ignore[arg-type]
            case "Answered":
                self._line(_answered(event))  # type: ignore[arg-type]
            case "Spiked":
                self._line(_spiked(event))  # type: ignore[arg-type]
            case "Saved":
                self._line(_saved(event))  # type: ignore[arg-type]
            case "Sampled":
                self._line(_sampled(event))  # type: ignore[arg-type]
            case "Warned":
                self._line(f"warning at step {group_digits(event.step)}: {event.message}")  # type: ignore[union-attr]

    def close(self) -> None:
        """Leave the last line standing, that of the last step."""
        if (self._is_drawn or self._late is not None) and self._is_read:
            with contextlib.suppress(OSError):
                if self._late is not None:
                    self._redraw(self._late)
                self._stream.write("\n")
                self._stream.flush()
            self._is_drawn = False

    def _step(self, event: Step) -> None:
        if self._overwrites:
            self._late = event
            if time.monotonic() - self._drawn_at >= _REDRAW_S:
                self._redraw(event)
        elif event.step % self._every == 0 or event.step + 1 == self._num_steps:
            self._line(step_line(event, self._num_steps, self._num_devices))

    def _redraw(self, event: Step) -> None:
        """Draw a step over the one before."""
        text = step_line(event, self._num_steps, self._num_devices)
        width = shutil.get_terminal_size((100, 24)).columns - 1
        self._stream.write(_ERASE + text[:width])
        self._stream.flush()
        self._is_drawn, self._drawn_at, self._late = True, time.monotonic(), None

    def _line(self, text: str) -> None:
        self._stream.write(f"{_ERASE if self._is_drawn else ''}{text}\n")
        self._stream.flush()
        self._is_drawn, self._late = False, None


def step_line(event: Step, num_steps: int, num_devices: int = 1) -> str:
    """One step in one line: step, loss, learning rate, tokens/s, MFU, waiting for data, memory, time left.

    Tokens/s are of all devices together; with several, of each one too.
    """
    digits = len(str(num_steps))
    parts = [
        f"step {event.step + 1:>{digits}}/{num_steps}",
        f"loss {event.loss:.4f}",
        f"lr {event.learning_rate:.2e}",
        f"{format_count(event.tokens_per_s)} tok/s",
    ]
    if num_devices > 1:
        parts[-1] += f" ({format_count(event.tokens_per_s / num_devices)} a device)"
    if event.mfu is not None:
        parts.append(f"MFU {format_percent(event.mfu)}{'?' if event.mfu > 1 else ''}")
    parts.append(f"data-wait {format_percent(event.data_wait_s / event.seconds)}")
    held = event.resident_bytes if event.device_peak_bytes is None else event.device_peak_bytes
    parts.append(format_bytes(held))
    parts.append(f"{format_duration(event.remaining_s)} left")
    return "  ".join(parts)


def _started(event: Started) -> str:
    resumed = f"resumed from {event.resumed_from}, " if event.resumed_from else ""
    told = (
        f"{resumed}training {group_digits(event.num_parameters)} parameters:"
        f" {group_digits(event.num_steps - event.first_step)} steps of {group_digits(event.tokens_per_step)} tokens,"
        f" {format_number(event.epochs)} epochs, in {event.folder}"
    )
    convention = [f"  {event.convention}"] if event.convention else []
    return "\n".join([told, *convention, *(f"  assumes: {assumption}" for assumption in event.assumptions)])


def _evaluated(event: Evaluated) -> str:
    return (
        f"step {event.step}: validation loss {event.validation_loss:.4f} nats"
        f" over {group_digits(event.num_tokens)} tokens, {format_duration(event.seconds)}"
    )


def _answered(event: Answered) -> str:
    return (
        f"step {event.step}: {group_digits(event.num_questions)} questions, right {format_percent(event.accuracy)},"
        f" for length {format_percent(event.normalized_accuracy)}, by chance {format_percent(event.chance)},"
        f" {format_duration(event.seconds)}"
    )


def _spiked(event: Spiked) -> str:
    back = f"the checkpoint before it is {event.checkpoint}" if event.checkpoint else "there is no checkpoint before it"
    return (
        f"spike at step {group_digits(event.step)}: {event.quantity} {event.value:.4f}, usually {event.usual:.4f}"
        f" ({event.score:.0f} robust deviations); training goes on, {back}"
    )


def _saved(event: Saved) -> str:
    return f"step {event.step}: saved {event.path} ({format_bytes(event.num_bytes)}, {format_duration(event.seconds)})"


def _sampled(event: Sampled) -> str:
    return f"step {event.step}: wrote {len(event.text)} characters in {format_duration(event.seconds)}"
