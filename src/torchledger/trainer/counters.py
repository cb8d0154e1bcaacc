"""What was done, counted: of this session and of the run's whole life, never mixed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

__all__ = ["Counters"]


@dataclass(frozen=True, slots=True)
class Counters:
    """Sums over steps. `a + b` is both together.

    A session ends with its process; the run's life is all steps that count, each once: what a kill undid and a later
    session did again is in it one time.

    Attributes:
        num_steps: steps done, skipped ones included.
        num_tokens: tokens of these steps, all micro-batches together.
        num_skipped: steps whose loss or gradient norm was no number, and which changed nothing.
        num_spikes: spikes of loss or gradient norm.
        training_s: seconds of these steps.
        data_wait_s: the part of them that was waiting for data.
    """

    num_steps: int = 0
    num_tokens: int = 0
    num_skipped: int = 0
    num_spikes: int = 0
    training_s: float = 0.0
    data_wait_s: float = 0.0

    def __add__(self, other: Self) -> Self:
        return type(self)(
            self.num_steps + other.num_steps,
            self.num_tokens + other.num_tokens,
            self.num_skipped + other.num_skipped,
            self.num_spikes + other.num_spikes,
            self.training_s + other.training_s,
            self.data_wait_s + other.data_wait_s,
        )

    @property
    def data_wait_share(self) -> float | None:
        """Seconds waited over seconds trained; nothing where nothing was trained."""
        return self.data_wait_s / self.training_s if self.training_s else None

    @classmethod
    def of_rows(cls, rows: Iterable[Mapping[str, Any]], tokens_per_step: int) -> Self:
        """Count what the rows of a metrics file tell.

        Args:
            rows: from `read_metrics`.
            tokens_per_step: for rows that do not say how many tokens their step had.
        """
        rows = list(rows)
        steps = [row for row in rows if row["kind"] == "step"]
        return cls(
            len(steps),
            sum(row.get("num_tokens", tokens_per_step) for row in steps),
            sum(bool(row.get("skipped")) for row in steps),
            sum(row["kind"] == "spike" for row in rows),
            sum(row["seconds"] for row in steps),
            sum(row["data_wait_s"] for row in steps),
        )
