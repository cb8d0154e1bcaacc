"""`MachineProfile`: what one machine was measured to deliver. The meter fills it, the planner reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

SCHEMA = "torchledger.machine_profile/1"


class ProfileError(ValueError):
    """A file is not a machine profile, or one of another schema."""


@dataclass(frozen=True, slots=True)
class MachineProfile:
    """What this machine, with this many threads and this torch, was measured to deliver.

    Attributes:
        device: name of the processor, as the system tells it.
        num_threads: threads that the figures hold for.
        torch_version: version that the figures hold for.
        measured_at: UTC time, ISO 8601.
        matmul: for every number format, points (FLOPs of one matmul, FLOP/s) in rising size.
        bandwidth: points (bytes one elementwise operation reads and writes, bytes per second) in rising size, on
            operands that are not in the caches and a result that is newly allocated, as in a training step.
        in_place_bytes_per_s: the same in place on memory far beyond the caches, as an optimizer works.
        operation_s: seconds that the smallest operation takes in a training step, autograd's share included.
        transcendental_s: seconds a transcendental operation (an exponential) takes beyond moving its bytes.
    """

    device: str
    num_threads: int
    torch_version: str
    measured_at: str
    matmul: Mapping[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    bandwidth: tuple[tuple[int, float], ...] = ()
    in_place_bytes_per_s: float = 0.0
    operation_s: float = 0.0
    transcendental_s: float = 0.0

    def peak(self, number_format: str) -> float | None:
        """The largest measured matmul FLOP/s in a format: the practical peak. `None` where it was not measured."""
        points = self.matmul.get(number_format, ())
        return max((rate for _, rate in points), default=None)

    def to_json(self) -> str:
        """The profile as JSON text."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> MachineProfile:
        """Read what `to_json` wrote.

        Raises:
            ProfileError: not JSON, not a profile, or another schema.
        """
        try:
            data: dict[str, Any] = json.loads(text)
            schema = data.pop("schema", None)
        except (json.JSONDecodeError, AttributeError) as error:
            raise ProfileError(f"not a machine profile: {error}") from error
        if schema != SCHEMA:
            raise ProfileError(f"this version reads schema {SCHEMA}, the file says {schema!r}")
        try:
            matmul = {name: _points(rows) for name, rows in data["matmul"].items()}
            return cls(**{**data, "matmul": matmul, "bandwidth": _points(data["bandwidth"])})
        except (KeyError, TypeError, ValueError) as error:
            raise ProfileError(f"a field of the machine profile is missing or wrong: {error}") from error


def _points(rows: list[list[float]]) -> tuple[tuple[int, float], ...]:
    return tuple((int(size), float(rate)) for size, rate in rows)
