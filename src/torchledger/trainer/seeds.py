"""One seed, many streams: whoever draws random numbers has a stream of its own, so that none can disturb another.

A stream's seed is a pure function of the run's seed, the stream's name and a counter. So there is no generator whose
state would have to be saved: the numbers of step n are found again from n alone.
"""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

__all__ = ["STREAMS", "OwnDraws", "dropout_seed", "seed_step", "step_seeds", "stream_seed"]

#: Every stream there is, and what its counter counts. A checkpoint lists them.
STREAMS: Final = MappingProxyType(
    {
        "initialization": "the name of the parameter",
        "order": "the epoch (in order.py, by its own keyed permutation)",
        "dropout": "the step, and the rank where there are several that have other tokens (torch's own generators)",
        "numpy": "the step, and the rank where there are several (NumPy's global generator)",
        "python": "the step, and the rank where there are several (the random module)",
        "sample": "the step at which the text is written",
    }
)


def stream_seed(seed: int, stream: str, counter: int | str = 0) -> int:
    """The seed of a stream at a counter, 0 to 2**63 - 1.

    >>> stream_seed(1337, "dropout", 7) == stream_seed(1337, "dropout", 7)
    True
    >>> stream_seed(1337, "dropout", 7) == stream_seed(1337, "dropout", 8)
    False
    """
    assert stream in STREAMS, stream
    digest = hashlib.blake2b(f"torchledger {stream} {seed} {counter}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def dropout_seed(seed: int, step: int, rank: int = 0) -> int:
    """The seed of a step's dropout: ranks have other rows, and drop other elements of them.

    >>> dropout_seed(1337, 7) == stream_seed(1337, "dropout", 7) != dropout_seed(1337, 7, rank=1)
    True
    """
    return stream_seed(seed, "dropout", _counter(step, rank))


def step_seeds(seed: int, step: int, rank: int = 0) -> dict[str, int]:
    """What every global generator is seeded with before a step, by its name: torch, numpy (32 bits) and python."""
    counter = _counter(step, rank)
    return {
        "torch": dropout_seed(seed, step, rank),
        "numpy": stream_seed(seed, "numpy", counter) % 2**32,
        "python": stream_seed(seed, "python", counter),
    }


def seed_step(seed: int, step: int, rank: int = 0) -> None:
    """Seed every global generator for a step: torch's, on all its devices, NumPy's and Python's.

    So whoever draws from one of them in a step, a layer of another package too, draws the same numbers after a resume,
    whatever an evaluation or a sample drew in between.
    """
    seeds = step_seeds(seed, step, rank)
    random.seed(seeds["python"])
    np.random.seed(seeds["numpy"])  # noqa: NPY002  # the global generator is meant: it is the one that others draw from
    # torch.manual_seed does this too, and formats a stack trace for CUDA each time while CUDA sleeps: 0.3 ms a step
    torch.default_generator.manual_seed(seeds["torch"])
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # asking whether there is one takes longer
        torch.cuda.manual_seed_all(seeds["torch"])
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(seeds["torch"])


class OwnDraws:
    """Random numbers of a rank's own, where it otherwise draws the same as others that hold the same tokens.

    Ranks that split the heads of attention hold the same stream, and have to drop the same of it, but other scores
    (Megatron-LM's two random states, Shoeybi et al., arXiv:1909.08053, section 3). Here there is one: within, torch's
    generator is seeded by its state at the entry and the rank; afterwards by that state alone, alike on all ranks. So
    whoever puts the state at the entry back, as recompute does, draws the same again.

    Args:
        rank: among those that draw apart.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank

    @contextmanager
    def of(self, x: Tensor) -> Iterator[None]:
        """Around what draws for `x`, on its device; of fake and meta tensors nothing is drawn."""
        if x.is_meta or isinstance(x, FakeTensor):
            yield
            return
        generator = _generator(x.device)
        state = generator.get_state().numpy().tobytes()
        generator.manual_seed(_digest(state, f"of rank {self.rank}"))
        yield
        generator.manual_seed(_digest(state, "afterwards"))


def _generator(device: torch.device) -> torch.Generator:
    """Of a device that a tensor is on."""
    return torch.cuda.default_generators[device.index] if device.type == "cuda" else torch.default_generator


def _digest(state: bytes, who: str) -> int:
    digest = hashlib.blake2b(state + f" torchledger {who}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _counter(step: int, rank: int) -> int | str:
    return f"{step} of rank {rank}" if rank else step
