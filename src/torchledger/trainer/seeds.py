"""One seed, many streams: whoever draws random numbers has a stream of its own, so that none can disturb another.

A stream's seed is a pure function of the run's seed, the stream's name and a counter. So there is no generator whose
state would have to be saved: the numbers of step n are found again from n alone.
"""

import hashlib
from types import MappingProxyType
from typing import Final

__all__ = ["STREAMS", "dropout_seed", "stream_seed"]

#: Every stream there is, and what its counter counts. A checkpoint lists them.
STREAMS: Final = MappingProxyType(
    {
        "initialization": "the name of the parameter",
        "order": "the epoch (in order.py, by its own keyed permutation)",
        "dropout": "the step, and the rank where there are several",
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
    return stream_seed(seed, "dropout", f"{step} of rank {rank}" if rank else step)
