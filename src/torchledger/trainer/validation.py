"""The loss on validation data: the same windows every time, and nothing of training touched."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch

from torchledger.spec import Recipe
from torchledger.trainer.model import Transformer
from torchledger.trainer.precision import autocast
from torchledger.trainer.step import MicroBatch
from torchledger.trainer.targets import count_targets

if TYPE_CHECKING:
    from torchledger.trainer.parallel import Parallel

__all__ = ["batch_losses", "evaluate"]


def evaluate(
    model: Transformer,
    batches: Iterable[MicroBatch],
    recipe: Recipe,
    stop: Callable[[], bool] = lambda: False,
    parallel: "Parallel | None" = None,
) -> tuple[float, int]:
    """Mean cross-entropy in nats over all targets of `batches`, and how many there were.

    Draws no random numbers, changes no gradient, and leaves the model in training mode. Runs in the recipe's precision.

    Args:
        model: the model.
        batches: inputs and targets; each target weighs the same, so batches may differ in size.
        recipe: for its precision.
        stop: asked before each batch; true ends the evaluation early. Of many ranks none is asked.
        parallel: how the model is spread over ranks, each of which has the same batches and runs its share of them.
    """
    losses = batch_losses(model, batches, recipe, stop, parallel)
    num_tokens = sum(count for _, count in losses)
    return sum(loss for loss, _ in losses) / max(num_tokens, 1), num_tokens


@torch.no_grad()
def batch_losses(
    model: Transformer,
    batches: Iterable[MicroBatch],
    recipe: Recipe,
    stop: Callable[[], bool] = lambda: False,
    parallel: "Parallel | None" = None,
) -> list[tuple[float, int]]:
    """Summed cross-entropy of each batch in nats, and how many targets it has; as `evaluate` for the rest."""
    was_training = model.training
    model.eval()
    try:
        if parallel is not None:
            return _on_ranks(model, list(batches), recipe, parallel)
        losses = []
        for batch in batches:
            if stop():
                break
            with autocast(batch[0].device, recipe.precision):
                loss = model(*batch)
            num_targets = count_targets(batch[1])
            losses.append((loss.item() * num_targets if num_targets else 0.0, num_targets))
        return losses
    finally:
        model.train(was_training)


def _on_ranks(
    model: Transformer, batches: list[MicroBatch], recipe: Recipe, parallel: "Parallel"
) -> list[tuple[float, int]]:
    """Each data parallel rank runs every so manieth batch; all run equally many, since sharded layers are gathered.

    The batches' losses are brought together before anybody adds them up, in their order, as one process does it.
    """
    rank, size = parallel.data_share
    counts = [count_targets(batch[1]) for batch in batches]
    losses = torch.zeros(len(batches), dtype=torch.float64, device=parallel.device)
    for first in range(0, len(batches), size):
        number = first + rank
        batch = batches[number if number < len(batches) else 0]
        with parallel.loss(), autocast(batch[0].device, recipe.precision):
            loss = parallel.evaluated(model, *batch)
        if number < len(batches) and counts[number]:
            losses[number] = loss.double() * counts[number]
    return list(zip(parallel.together(losses).tolist(), counts, strict=True))
