"""`Ranks`: which process of how many this one is. Whoever starts the processes knows; nothing here asks."""

from dataclasses import dataclass

from torchledger.spec import Strategy

__all__ = ["Ranks"]


@dataclass(frozen=True, slots=True)
class Ranks:
    """One process of a run.

    Attributes:
        rank: its number, from 0. Rank 0 writes files and is the one that is heard.
        size: how many processes there are.
        local_rank: its number on its host, which is also that of its device.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    def __post_init__(self) -> None:
        assert 0 <= self.rank < self.size
        assert 0 <= self.local_rank <= self.rank

    @property
    def is_first(self) -> bool:
        """Whether it is the one that writes and shows."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        """Whether there is no other: then nothing is sent, and no process group is there."""
        return self.size == 1

    def data_rank(self, tensor_parallel: int) -> int:
        """Which share of a batch it reads: ranks that split matrices read the same one, and lie next to each other.

        >>> [Ranks(rank, 4).data_rank(2) for rank in range(4)]
        [0, 0, 1, 1]
        """
        return self.rank // tensor_parallel

    def drawing_rank(self, strategy: Strategy) -> int:
        """Which stream of random numbers it drops elements by: ranks that hold the same tokens have the same one.

        Those are the ranks that split matrices, unless they split the tokens too (sequence parallelism).

        >>> from torchledger.spec import Strategy
        >>> split = Strategy(data_parallel=2, tensor_parallel=2)
        >>> [Ranks(rank, 4).drawing_rank(split) for rank in range(4)]
        [0, 0, 1, 1]
        """
        return self.rank if strategy.sequence_parallel else self.data_rank(strategy.tensor_parallel)
