"""`seed_everything`: the seeds of torch, NumPy and Python set together and told, so that they can be written down."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import torch

Stream: TypeAlias = Literal["torch", "numpy", "python"]
STREAMS: tuple[Stream, ...] = ("torch", "numpy", "python")


@dataclass(frozen=True, slots=True)
class Seeds:
    """What the global random streams were seeded with.

    Attributes:
        torch: of torch's generators, on all devices.
        numpy: of NumPy's global generator (32 bits); nothing where NumPy is not loaded, so that nothing drew from it.
        python: of the random module.
    """

    torch: int
    numpy: int | None
    python: int

    def told(self) -> Mapping[str, int | None]:
        """By the stream's name."""
        return asdict(self)


def seed_everything(seed: int, **others: int) -> Seeds:
    """Seed every global random stream there is; private generators are not reached.

    Args:
        seed: of all of them; NumPy takes its lowest 32 bits.
        others: another seed for a stream, by its name (`numpy=7`).

    >>> seed_everything(2**32 + 5, python=7)
    Seeds(torch=4294967301, numpy=5, python=7)
    """
    assert set(others) <= set(STREAMS), others
    seeds = dict.fromkeys(STREAMS, seed) | others
    torch.manual_seed(seeds["torch"])
    random.seed(seeds["python"])
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return Seeds(seeds["torch"], None, seeds["python"])
    numpy.random.seed(seeds["numpy"] % 2**32)
    return Seeds(seeds["torch"], seeds["numpy"] % 2**32, seeds["python"])


def stream_states() -> Mapping[Stream, Any]:
    """Where the global streams stand, comparable: one that differs from before was drawn from."""
    numpy = sys.modules.get("numpy")
    devices = (
        [bytes(state.tolist()) for state in torch.cuda.get_rng_state_all()]
        if torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch's function has no types
        else []
    )
    return {
        "torch": (torch.get_rng_state().numpy().tobytes(), *devices),
        "numpy": None if numpy is None else _plain(numpy.random.get_state()),
        "python": random.getstate(),
    }


def draw_from(*streams: Stream) -> None:
    """Draw a few numbers, as an evaluation or a sample in between would."""
    numpy = sys.modules.get("numpy")
    for _ in range(3):
        if "torch" in streams:
            torch.rand(7)
        if "numpy" in streams and numpy is not None:
            numpy.random.random_sample(5)
        if "python" in streams:
            random.random()


def _plain(state: Any) -> tuple[Any, ...]:
    name, keys, *rest = state
    return (name, keys.tobytes(), *rest)
