"""The loss on validation data: the same windows every time, and nothing of training touched."""

from collections.abc import Callable, Iterable

import torch

from torchledger.spec import Recipe
from torchledger.trainer.model import Transformer
from torchledger.trainer.precision import autocast
from torchledger.trainer.step import MicroBatch

__all__ = ["evaluate"]


@torch.no_grad()
def evaluate(
    model: Transformer, batches: Iterable[MicroBatch], recipe: Recipe, stop: Callable[[], bool] = lambda: False
) -> tuple[float, int]:
    """Mean cross-entropy in nats over all tokens of `batches`, and how many there were.

    Draws no random numbers, changes no gradient, and leaves the model in training mode. Runs in the recipe's precision.

    Args:
        model: the model.
        batches: inputs and targets; each token weighs the same, so batches may differ in size.
        recipe: for its precision.
        stop: asked before each batch; true ends the evaluation early.
    """
    total, num_tokens = 0.0, 0
    model.eval()
    try:
        for tokens, targets in batches:
            if stop():
                break
            with autocast(tokens.device, recipe.precision):
                loss = model(tokens, targets)
            total += loss.item() * targets.numel()
            num_tokens += targets.numel()
    finally:
        model.train()
    return total / max(num_tokens, 1), num_tokens
