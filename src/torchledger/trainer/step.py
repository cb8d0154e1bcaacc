"""One training step, from token ids to new weights: traced on fake tensors and run for real as the very same object."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.optim import Optimizer

from torchledger.spec import ModelSpec, Recipe
from torchledger.trainer.init import initialize
from torchledger.trainer.model import Recompute, Transformer, build
from torchledger.trainer.optimizer import build_optimizer
from torchledger.trainer.precision import autocast
from torchledger.trainer.schedule import learning_rate
from torchledger.trainer.unbuilt import require_built_recipe

__all__ = ["MayUpdate", "MicroBatch", "StepResult", "TrainStep", "build_step", "example_batch", "micro_batches"]

MicroBatch = tuple[Int[Tensor, "rows length"], Int[Tensor, "rows length"]]
#: Whether to update, given each micro-batch's share of the loss and the gradient norm.
MayUpdate = Callable[[Sequence[Tensor], Tensor | None], bool]


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step gives back. Both stay tensors: nothing in a step waits for the device.

    Attributes:
        loss: mean cross-entropy over all tokens of the step, in nats, before the update.
        gradient_norm: global norm of the gradients before clipping; nothing where the recipe does not clip.
        skipped: whether the update was left out; parameters and optimizer are then as before.
    """

    loss: Float[Tensor, ""]
    gradient_norm: Float[Tensor, ""] | None
    skipped: bool = False


class TrainStep:
    """Forward, backward, clip, update.

    The step allocates what the recipe implies and nothing else. Gradients begin as nothing and are freed at the end of
    the step (`zero_grad(set_to_none=True)` after the update), so that between steps, in evaluation, and while a
    checkpoint is written only parameters and optimizer state are alive.

    Args:
        model: what is trained.
        optimizer: over its parameters.
        recipe: precision, clipping, schedule; `num_tokens` is the horizon of the schedule.
    """

    def __init__(self, model: Transformer, optimizer: Optimizer, recipe: Recipe) -> None:
        self.model = model
        self.optimizer = optimizer
        self.recipe = recipe

    def __call__(self, batches: Sequence[MicroBatch], step: int, may_update: MayUpdate | None = None) -> StepResult:
        """Do update `step` (from 0).

        Each micro-batch counts by its share of the step's tokens, so that several are one large batch, also when they
        are not equally large.

        Args:
            batches: the micro-batches.
            step: the number of the update.
            may_update: asked once loss and gradients are there; no leaves the update out. Reading a number there waits
                for the device. On many ranks every rank has to answer alike. Nothing asks, and always updates.
        """
        num_tokens = sum(targets.numel() for _, targets in batches)
        losses = [self._forward_backward(tokens, targets, num_tokens) for tokens, targets in batches]
        norm = self._clip()
        skipped = may_update is not None and not may_update(losses, norm)
        if not skipped:
            self._update(step)
        self.optimizer.zero_grad(set_to_none=True)
        return StepResult(losses[0] if len(losses) == 1 else torch.stack(losses).sum(), norm, skipped)

    def _update(self, step: int) -> None:
        rate = learning_rate(self.recipe.optimizer, step, self.recipe.num_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()

    def _forward_backward(self, tokens: Tensor, targets: Tensor, num_tokens: int) -> Float[Tensor, ""]:
        with autocast(tokens.device, self.recipe.precision):
            loss: Tensor = self.model(tokens, targets)
        if targets.numel() != num_tokens:
            loss = loss * (targets.numel() / num_tokens)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _clip(self) -> Float[Tensor, ""] | None:
        limit = self.recipe.optimizer.gradient_clip
        return torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit) if limit > 0 else None


def build_step(spec: ModelSpec, recipe: Recipe, *, initialized: bool = True) -> TrainStep:
    """Model, optimizer and step on the current default device; fake where a fake tensor mode is on.

    Args:
        spec: the model.
        recipe: how it is trained.
        initialized: whether to draw the parameters' values; on fake tensors there are none to draw.

    Raises:
        SpecError: the model or the recipe says something that the trainer does not do; the fields are named.
    """
    require_built_recipe(recipe)
    recompute: Recompute = "full" if recipe.recompute == "full" else "none"
    model = build(spec, attention=recipe.attention, recompute=recompute, sequence_length=recipe.sequence_length)
    if initialized:
        initialize(model, recipe.initialization, recipe.seed)
    return TrainStep(model, build_optimizer(model, recipe.optimizer), recipe)


def micro_batches(batch: MicroBatch, accumulation_steps: int) -> list[MicroBatch]:
    """A batch as `accumulation_steps` micro-batches of equally many rows: views, not copies."""
    tokens, targets = batch
    rows = len(tokens) // accumulation_steps
    return [(tokens[i : i + rows], targets[i : i + rows]) for i in range(0, len(tokens), rows)]


def example_batch(recipe: Recipe) -> list[MicroBatch]:
    """The micro-batches of one step, all ids 0, on the current default device: a step's shape without its data."""
    shape = (recipe.batch_size, recipe.sequence_length)
    return micro_batches(
        (torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)), recipe.accumulation_steps
    )
