"""One training step, from token ids to new weights: traced on fake tensors and run for real as the very same object."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.optim import Optimizer

from torchledger.spec import ModelSpec, Recipe, Strategy
from torchledger.trainer.clipping import clip
from torchledger.trainer.frozen import adapt, freeze
from torchledger.trainer.init import learning_rate_scales
from torchledger.trainer.initial_weights import give_values, rehearse_values
from torchledger.trainer.loss_scale import LossScale
from torchledger.trainer.model import Transformer, build
from torchledger.trainer.narrowing import narrow, narrow_products
from torchledger.trainer.optimizer import build_optimizer
from torchledger.trainer.placeholders import fill, placeholders
from torchledger.trainer.precision import autocast, tensor_float_32
from torchledger.trainer.schedule import learning_rate
from torchledger.trainer.targets import Shares, target_shares
from torchledger.trainer.unbuilt import require_built_recipe

if TYPE_CHECKING:
    from torchledger.trainer.parallel import Parallel

__all__ = [
    "MayUpdate",
    "MicroBatch",
    "StepResult",
    "TrainStep",
    "build_model",
    "build_step",
    "example_batch",
    "micro_batches",
]

#: Token ids and targets; where the recipe keeps documents apart, the number of each token's document too.
MicroBatch = tuple[Int[Tensor, "rows length"], ...]
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
    the step (set to nothing after the update), so that between steps, in evaluation, and while a
    checkpoint is written only parameters and optimizer state are alive.

    Args:
        model: what is trained.
        optimizer: over its parameters.
        recipe: precision, clipping, schedule; `num_tokens` is the horizon of the schedule. On many ranks, as one of
            them runs it (`layout.local_recipe`).
        parallel: how the model is spread over ranks; nothing is one process.
    """

    def __init__(
        self, model: Transformer, optimizer: Optimizer, recipe: Recipe, parallel: "Parallel | None" = None
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.recipe = recipe
        self.parallel = parallel
        #: A walk over all modules, which in the middle of a step is 1 % of a small model's.
        self._parameters = list(model.parameters())
        device = self._parameters[0].device
        self.loss_scale = LossScale(device) if recipe.precision == "fp16" else None

    def __call__(self, batches: Sequence[MicroBatch], step: int, may_update: MayUpdate | None = None) -> StepResult:
        """Do update `step` (from 0).

        Each micro-batch counts by its share of the step's targets, those that are ignored left out, so that several are
        one large batch, also when they are not equally large. A mean of means would not be
        (github.com/huggingface/transformers/pull/34191).

        Args:
            batches: the micro-batches.
            step: the number of the update.
            may_update: asked once loss and gradients are there; no leaves the update out. Reading a number there waits
                for the device. On many ranks every rank has to answer alike. Nothing asks, and always updates.
        """
        with tensor_float_32() if self.recipe.precision == "tf32" else contextlib.nullcontext():
            return self._step(batches, step, may_update)

    def state(self) -> dict[str, Tensor]:
        """What goes on from step to step beside parameters and optimizer: the loss scale of FP16; else nothing."""
        return {} if self.loss_scale is None else self.loss_scale.state()

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        if self.loss_scale is not None:
            self.loss_scale.load(state)

    def _step(self, batches: Sequence[MicroBatch], step: int, may_update: MayUpdate | None) -> StepResult:
        shares = self._shares([batch[1] for batch in batches])
        if self.parallel is None:
            losses = [self._forward_backward(batch, share) for batch, share in zip(batches, shares, strict=True)]
        else:
            losses = [self._on_ranks(self.parallel, batches, shares)]
        norm = self._clip()
        # A gradient that overflows is what a loss scale looks for, and leaves out by itself.
        asked = norm if self.loss_scale is None else None
        skipped = may_update is not None and not may_update(losses, asked)
        if not skipped:
            self._update(step)
        if self.loss_scale is not None:
            self.loss_scale.adapt()
        for parameter in self._parameters:
            parameter.grad = None
        return StepResult(losses[0] if len(losses) == 1 else torch.stack(losses).sum(), norm, skipped)

    def _shares(self, targets: Sequence[Tensor]) -> list[Shares]:
        further = self.model.spec.num_prediction_layers
        if self.parallel is None or self.parallel.data_share[1] == 1:
            return target_shares(targets, num_further=further)
        parallel = self.parallel
        return target_shares(
            targets, num_further=further, added_up=parallel.added_up, num_averaged=parallel.data_share[1]
        )

    def _update(self, step: int) -> None:
        rate = learning_rate(self.recipe.optimizer, step, self.recipe.num_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("scale", 1.0)
        if self.loss_scale is None:
            self.optimizer.step()
        else:
            self.loss_scale.step(self.optimizer)

    def _on_ranks(
        self, parallel: "Parallel", batches: Sequence[MicroBatch], shares: Sequence[Shares]
    ) -> Float[Tensor, ""]:
        """Forward and backward over this rank's rows; the mean loss of all ranks, on each of them."""
        losses = []
        for number, (batch, share) in enumerate(zip(batches, shares, strict=True), 1):
            with parallel.micro_batch(is_last=number == len(batches)):
                losses.append(self._forward_backward(batch, share))
        parallel.finish_gradients(self.model)
        return parallel.agree(losses[0] if len(losses) == 1 else torch.stack(losses).sum())

    def _forward_backward(self, batch: MicroBatch, shares: Shares) -> Float[Tensor, ""]:
        assert len(batch) == 2 + self.recipe.document_mask, "documents come with the batch where they are kept apart"
        # One factor for the sum of all losses, unless each needs its own.
        apart = None if shares.are_equal or not self.model.has_losses_beside else shares
        with autocast(batch[0].device, self.recipe.precision):
            loss: Tensor = self._loss(batch, apart)
        if apart is None and shares.main != 1:
            loss = loss * shares.main
        (loss if self.loss_scale is None else self.loss_scale.scaled(loss)).backward()  # type: ignore[no-untyped-call]
        # A mean over no target is no number, but adds nothing to the others.
        return loss.detach() if shares.main else torch.zeros_like(loss)

    def _loss(self, batch: MicroBatch, shares: Shares | None) -> Float[Tensor, ""]:
        named = {} if shares is None else {"shares": shares}
        if self.parallel is None:
            loss: Tensor = self.model(*batch, **named)
            return loss
        return self.parallel.forward(self.model, *batch, **named)

    def _clip(self) -> Float[Tensor, ""] | None:
        limit = self.recipe.optimizer.gradient_clip
        if self.loss_scale is not None:
            self.loss_scale.unscale(self.optimizer, None if self.parallel is None else self.parallel.overflow)
        if self.parallel is not None:
            return self.parallel.clip(self.model, limit) if limit > 0 else None
        return clip(self._parameters, limit) if limit > 0 else None


def build_step(
    spec: ModelSpec,
    recipe: Recipe,
    *,
    initialized: bool = True,
    strategy: Strategy | None = None,
    weights: Path | None = None,
) -> TrainStep:
    """Model, optimizer and step on the current default device; fake where a fake tensor mode is on.

    Args:
        spec: the model.
        recipe: how it is trained.
        initialized: whether to draw the parameters' values; fake tensors have none, and hold what drawing holds.
        strategy: how it is spread over the ranks of the process group; `recipe` is then that of one rank.
        weights: where values are read from in place of drawing them (`initial_weights`).

    Raises:
        SpecError: the model or the recipe says something that the trainer does not do; the fields are named.
        SetupError, ForeignWeightsError, CheckpointError: weights that are not there or do not fit.
    """
    require_built_recipe(recipe)
    is_alone = strategy is None or strategy.num_ranks == 1
    parallel = None if strategy is None or is_alone else _parallel(strategy)
    is_sharded = parallel is not None and parallel.is_sharded
    with placeholders() if is_sharded else contextlib.nullcontext():
        model = build_model(spec, recipe)
    if parallel is not None:
        parallel.split(model)
    if parallel is not None and is_sharded:  # before there are values, so that no rank ever holds all of them
        parallel.spread(model)
        fill(model, torch.get_default_device())
    if initialized:
        give_values(model, recipe, weights)
    else:
        rehearse_values(model, weights)
    is_split = strategy is not None and strategy.tensor_parallel > 1
    if parallel is not None and is_split:  # makes other objects of the parameters, which masters are found by
        parallel.spread(model)
    masters = narrow(model, recipe.precision)
    if parallel is not None and not is_sharded and not is_split:  # notes the parameters that it finds
        parallel.spread(model)
    scales = learning_rate_scales(model, recipe)
    optimizer = build_optimizer(model, recipe.optimizer, recipe.precision, masters=masters, scales=scales)
    return TrainStep(model, optimizer, recipe, parallel)


def _parallel(strategy: Strategy) -> "Parallel":
    from torchledger.trainer.parallel import Parallel  # a second of imports that only many ranks need

    return Parallel(strategy, torch.get_default_device())


def build_model(spec: ModelSpec, recipe: Recipe) -> Transformer:
    """The model as a recipe runs it, its parameters without values.

    Raises:
        SpecError: the model says something that the trainer does not do; the fields are named.
    """
    model = build(
        spec,
        attention=recipe.attention,
        recompute=recipe.recompute,
        recomputes=recipe.recomputes_layer,
        loss_chunk=recipe.loss_chunk,
        load_balance=recipe.load_balance,
        sequence_length=recipe.sequence_length,
    )
    narrow_products(model, recipe.precision)
    if recipe.lora_rank:
        adapt(model, recipe.lora_rank, recipe.lora_targets)
    freeze(model, recipe)
    return model


def micro_batches(batch: MicroBatch, accumulation_steps: int) -> list[MicroBatch]:
    """A batch as `accumulation_steps` micro-batches of equally many rows: views, not copies; or the batch itself."""
    if accumulation_steps == 1:
        return [batch]
    rows = len(batch[0]) // accumulation_steps
    return [tuple(part[i : i + rows] for part in batch) for i in range(0, len(batch[0]), rows)]


def example_batch(recipe: Recipe) -> list[MicroBatch]:
    """The micro-batches of one step, all ids 0, on the current default device: a step's shape without its data."""
    shape = (recipe.batch_size, recipe.sequence_length)
    parts = 2 + recipe.document_mask
    return micro_batches(tuple(torch.zeros(shape, dtype=torch.int64) for _ in range(parts)), recipe.accumulation_steps)
