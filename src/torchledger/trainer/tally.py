"""The running figures of a run: losses, pace, counters, spikes, skipped steps; found again from its rows."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchledger.trainer.counters import Counters
from torchledger.trainer.sliding import Sliding
from torchledger.trainer.spikes import WINDOW, SpikeWatch

__all__ = ["Rise", "Tally"]

WARM_UP_STEPS = 3  # first steps of a session: kernels are chosen, buffers first touched
RECENT_STEPS = 50  # the pace is the median of these


@dataclass(frozen=True, slots=True)
class Rise:
    """A quantity that a spike begins in.

    Attributes:
        quantity: `loss` or `gradient norm`.
        value: what it was.
        usual: median of the steps before.
        score: robust deviations above that.
    """

    quantity: str
    value: float
    usual: float
    score: float


class Tally:
    """Adds up steps. What earlier sessions did is read from their rows, so that a resumed run goes on counting.

    Args:
        rows: of the metrics file, those before the first step.
        tokens_per_step: of the recipe.
        first_step: the update that comes next.

    Attributes:
        initial_loss: of the run's very first update.
        final_loss: of the last one.
        streak: steps in a row, up to now, that were skipped.
        session: what this session did.
        number: of this session in the run's life, from 0; one that does no step leaves no trace, and none is counted.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]], tokens_per_step: int, first_step: int) -> None:
        steps = [row for row in rows if row["kind"] == "step"]
        self.initial_loss: float | None = next((row["loss"] for row in steps if row["step"] == 0), None)
        self.final_loss: float | None = steps[-1]["loss"] if steps else None
        self.streak = 0
        for row in steps:
            self.streak = self.streak + 1 if row.get("skipped") else 0
        self.session = Counters()
        self._earlier = Counters.of_rows(rows, tokens_per_step)
        last = steps[-1].get("session", 0) if steps else -1
        self.number: int = last + 1
        self._earlier_seconds = [
            row["seconds"]
            for row in steps
            if row.get("session", 0) == last and not row["warm_up"] and not row.get("skipped")
        ]
        recent = steps[-2 * WINDOW :]  # the second half is judged by a whole window, the first fills it
        self._watches = {
            "loss": SpikeWatch(row["loss"] for row in recent),
            "gradient norm": SpikeWatch((row["gradient_norm"] for row in recent), logarithmic=True),
        }
        self._first_step = first_step
        self._seconds: list[float] = []
        self._recent = Sliding(RECENT_STEPS)

    @property
    def lifetime(self) -> Counters:
        """What all sessions did, each step counted once."""
        return self._earlier + self.session

    @property
    def step_s(self) -> float | None:
        """Median seconds of this session's steps, warm-up and skipped ones left out; nothing where none are left.

        Of a session without steps, those of the last that had some. Two sessions are never mixed: threads, ranks, batch
        or machine may have been others.
        """
        seconds = self._seconds if self.session.num_steps else self._earlier_seconds
        return statistics.median(seconds) if seconds else None

    @property
    def recent_step_s(self) -> float | None:
        """Median seconds of the last fifty steps; nothing while the session warms up."""
        return self._recent.median

    def is_warm_up(self, step: int) -> bool:
        """Whether `step` is one of the session's first."""
        return step - self._first_step < WARM_UP_STEPS

    def add(
        self,
        step: int,
        loss: float,
        norm: float | None,
        *,
        seconds: float,
        waited: float,
        num_tokens: int,
        skipped: bool,
    ) -> tuple[Rise, ...]:
        """Add a step, and give back the spikes that begin with it."""
        if not skipped and not self.is_warm_up(step):
            self._seconds.append(seconds)
            self._recent.add(seconds)
        self.streak = self.streak + 1 if skipped else 0
        self.initial_loss, self.final_loss = loss if step == 0 else self.initial_loss, loss
        spikes = []
        for quantity, value in (("loss", loss), ("gradient norm", norm)):
            verdict = self._watches[quantity].judge(value)
            if verdict.begins:
                assert value is not None
                assert verdict.usual is not None
                assert verdict.score is not None
                spikes.append(Rise(quantity, value, verdict.usual, verdict.score))
        self.session += Counters(1, num_tokens, int(skipped), len(spikes), seconds, waited)
        return tuple(spikes)
