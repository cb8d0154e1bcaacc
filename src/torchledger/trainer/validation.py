"""The loss on validation data: the same windows every time, and nothing of training touched."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch

from torchledger.spec import Recipe
from torchledger.trainer.model import Transformer
from torchledger.trainer.precision import autocast
from torchledger.trainer.step import MicroBatch

if TYPE_CHECKING:
    from torchledger.trainer.parallel import Parallel

__all__ = ["evaluate"]


@torch.no_grad()
def evaluate(
    model: Transformer,
    batches: Iterable[MicroBatch],
    recipe: Recipe,
    stop: Callable[[], bool] = lambda: False,
    parallel: "Parallel | None" = None,
) -> tuple[float, int]:
    """Mean cross-entropy in nats over all tokens of `batches`, and how many there were.

    Draws no random numbers, changes no gradient, and leaves the model in training mode. Runs in the recipe's precision.

    Args:
        model: the model.
        batches: inputs and targets; each token weighs the same, so batches may differ in size.
        recipe: for its precision.
        stop: asked before each batch; true ends the evaluation early. Of many ranks none is asked.
        parallel: how the model is spread over ranks, each of which has the same batches and runs its share of them.
    """
    if parallel is not None:
        return _on_ranks(model, list(batches), recipe, parallel)
    total, num_tokens = 0.0, 0
    model.eval()
    try:
        for tokens, targets, *documents in batches:
            if stop():
                break
            with autocast(tokens.device, recipe.precision):
                loss = model(tokens, targets, *documents)
            total += loss.item() * targets.numel()
            num_tokens += targets.numel()
    finally:
        model.train()
    return total / max(num_tokens, 1), num_tokens


def _on_ranks(model: Transformer, batches: list[MicroBatch], recipe: Recipe, parallel: "Parallel") -> tuple[float, int]:
    """Each data parallel rank runs every so manieth batch; all run equally many, since sharded layers are gathered.

    The batches' losses are brought together before they are added up, in their order, as one process does it.
    """
    rank, size = parallel.data_share
    losses = torch.zeros(len(batches), dtype=torch.float64, device=parallel.device)
    model.eval()
    try:
        for first in range(0, len(batches), size):
            number = first + rank
            tokens, targets = batches[number if number < len(batches) else 0]
            with parallel.loss(), autocast(tokens.device, recipe.precision):
                loss = parallel.evaluated(model, tokens, targets)
            if number < len(batches):
                losses[number] = loss * targets.numel()
    finally:
        model.train()
    total = sum(parallel.together(losses).tolist())
    num_tokens = sum(targets.numel() for _, targets in batches)
    return total / max(num_tokens, 1), num_tokens
