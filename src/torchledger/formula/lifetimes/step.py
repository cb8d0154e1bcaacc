"""A training step as the trainer's allocates: micro-batches, clipping, update (`trainer.step`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torchledger.formula.kernels import Kernels
from torchledger.formula.layout import contiguous
from torchledger.formula.lifetimes.autograd import backward
from torchledger.formula.lifetimes.memory import Block, Memory
from torchledger.formula.lifetimes.model import forward
from torchledger.formula.lifetimes.modules import Weights
from torchledger.formula.lifetimes.operations import like, scale
from torchledger.formula.lifetimes.tensors import Tensor
from torchledger.formula.lifetimes.updates import clipped, in_order, update
from torchledger.formula.moments import Moment
from torchledger.formula.precision import FORMATS
from torchledger.ledger import Amount
from torchledger.spec import ModelSpec, Recipe

#: Precisions that the trainer runs on a CPU.
_RUN = frozenset({"fp32", "tf32", "bf16", "bf16-master", "bf16-moments", "bf16-pure", "fp8"})


def is_rehearsed(spec: ModelSpec, recipe: Recipe, kernels: Kernels) -> bool:
    """Whether a step can be rehearsed: the trainer's own on a CPU, in whole numbers."""
    attention = spec.attention
    sizes = (spec.vocab_size, spec.hidden_size, spec.num_layers, spec.mlp.intermediate_size, attention.num_heads)
    whole = all(isinstance(size, int) for size in (*sizes, recipe.batch_size, recipe.sequence_length))
    return whole and kernels.name == "cpu" and recipe.precision in _RUN


def rehearsed(spec: ModelSpec, recipe: Recipe, standing: Mapping[str, Amount]) -> tuple[Moment, ...]:
    """The fullest moments of the forward and the backward passes, of clipping, and of the optimizer's step.

    Args:
        spec: the model.
        recipe: how it is trained.
        standing: bytes by part of what is there throughout.
    """
    return tuple(_step(spec, recipe, standing))


def _step(spec: ModelSpec, recipe: Recipe, standing: Mapping[str, Amount]) -> Iterator[Moment]:
    memory = Memory()
    held = [Block(memory, num_bytes, part) for part, num_bytes in standing.items()]
    weights = Weights(memory, FORMATS[recipe.precision].stored)
    losses: list[Tensor] = []
    fullest: dict[str, Moment] = {}
    for _ in range(recipe.accumulation_steps):
        for phase, moment in _forward_backward(weights, spec, recipe, losses):
            if phase not in fullest or moment.total_bytes >= fullest[phase].total_bytes:
                fullest[phase] = moment
    yield from fullest.values()
    trained = in_order(list(weights.found.values()))
    memory.forget()
    norm = clipped(memory, trained) if recipe.optimizer.gradient_clip > 0 else None
    if norm is not None:
        yield Moment("clipping", _parts(memory))
    memory.forget()
    update(memory, trained, recipe, spec.hidden_size)
    yield Moment("optimizer step", _parts(memory))
    for each in trained:  # whose tensor knows it, so that neither would go by itself
        each.gradient = each.tensor.leaf = None
    weights.left.clear()
    del held, losses, norm


def _forward_backward(
    weights: Weights, spec: ModelSpec, recipe: Recipe, losses: list[Tensor]
) -> Iterator[tuple[str, Moment]]:
    memory = weights.memory
    shape = (recipe.batch_size // recipe.accumulation_steps, recipe.sequence_length)
    tokens, targets = (Tensor(Block(memory, 0, "inputs"), shape, contiguous(shape), "int64") for _ in range(2))
    memory.forget()
    memory.casts = {} if FORMATS[recipe.precision].is_autocast else None
    loss = forward(weights, spec, recipe, tokens, targets)
    memory.casts = None
    yield "forward", Moment(f"forward of {_named(memory)}", _parts(memory))
    memory.forget()
    if recipe.accumulation_steps != 1:
        loss = scale(loss)
    backward(loss, like(loss))
    yield "backward", Moment(f"backward of {_named(memory)}", _parts(memory))
    losses.append(loss.detached())


def _named(memory: Memory) -> str:
    place = memory.fullest_place
    return f"the {place}" if place in {"loss", "head", "embedding"} else place or "the model"


def _parts(memory: Memory) -> dict[str, Amount]:
    return {**dict.fromkeys(("gradients", "activations", "temporaries"), 0), **memory.fullest}
