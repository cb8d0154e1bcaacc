"""One process that drops what so many ranks would, each with its own random numbers."""

import contextlib

import torch
from torch.nn import functional

from torchledger.trainer.ranks import Ranks
from torchledger.trainer.seeds import OwnDraws, seed_step


class DrawnByRanks:
    """Dropout whose every part is drawn as the rank that holds it draws.

    Of the stream ranks have the whole, and draw alike; or, with sequence parallelism, shares of the tokens. Of
    attention's weights each has some of the heads.

    Args:
        recipe: of the run, in micro-batches of one process.
        strategy: a layout of tensor parallel ranks alone.
    """

    def __init__(self, recipe, strategy):
        self.recipe, self.strategy, self.dropout = recipe, strategy, functional.dropout
        self.states = []

    @contextlib.contextmanager
    def in_force(self):
        """While inside, torch's dropout is this one."""
        functional.dropout = self
        try:
            yield
        finally:
            functional.dropout = self.dropout

    def begin(self, number):
        """Seed a step as every rank does."""
        size = self.strategy.num_ranks
        for rank in range(size):
            seed_step(self.recipe.seed, number, Ranks(rank, size).drawing_rank(self.strategy))
            self.states[rank:] = [torch.get_rng_state()]

    def __call__(self, x, p, training):
        """The ranks' parts of `x` after dropout."""
        if not training:
            return x
        rows, size = self.recipe.micro_batch_size, self.strategy.tensor_parallel
        is_stream = len(x) == rows
        if is_stream and not self.strategy.sequence_parallel:
            return self._drawn(range(size), [x] * size, p)[0]
        whole = x if is_stream else x.unflatten(0, (rows, -1))
        parts = [part.reshape(-1, *x.shape[1:]) if not is_stream else part for part in whole.chunk(size, dim=1)]
        drawn = self._drawn(range(size), parts, p, apart=not (is_stream or self.strategy.sequence_parallel))
        if is_stream:
            return torch.cat(drawn, dim=1)
        return torch.cat([part.unflatten(0, (rows, -1)) for part in drawn], dim=1).flatten(0, 1)

    def _drawn(self, ranks, parts, p, *, apart=False):
        found = []
        for rank, part in zip(ranks, parts, strict=True):
            torch.set_rng_state(self.states[rank])
            with OwnDraws(rank).of(part) if apart else contextlib.nullcontext():
                found.append(self.dropout(part, p, True))
            self.states[rank] = torch.get_rng_state()
        return found
