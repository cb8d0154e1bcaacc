"""The moments of a training step that can be its peak, each with what is alive in it.

What the backward pass makes inside a layer for itself is not in them, so that each is a lower bound of the peak; where
the logits are large, as in most training, the loss's backward is the peak and exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torchledger.formula.optimizer import is_decayed, trained
from torchledger.formula.parameters import Parameter, parameters
from torchledger.formula.precision import FORMATS
from torchledger.formula.value import ELEMENT_BYTES, Activation
from torchledger.ledger import Amount
from torchledger.spec import ModelSpec, Recipe


@dataclass(frozen=True, slots=True)
class Moment:
    """What is alive at one moment of the step.

    Attributes:
        name: when it is.
        parts: bytes by part.
    """

    name: str
    parts: Mapping[str, Amount]

    @property
    def total_bytes(self) -> Amount:
        """Bytes of all parts."""
        return sum(self.parts.values())


def moments(
    spec: ModelSpec,
    recipe: Recipe,
    standing: Mapping[str, Amount],
    activations: Sequence[Activation],
    activation_bytes: Amount,
) -> tuple[Moment, ...]:
    """Backward of loss, head, first layer and embedding, the sum of a tied matrix's gradients, the optimizer's step.

    Args:
        spec: the model.
        recipe: how it is trained.
        standing: bytes by part of what is alive throughout: parameters, buffers, optimizer state, inputs.
        activations: what one layer's backward pass finds, kept or made again.
        activation_bytes: what is kept at the end of the forward pass.
    """
    rows, width = recipe.micro_batch_size * recipe.sequence_length, _embedding_width(spec)
    logits, matrix = 4 * rows * spec.vocab_size, 4 * spec.vocab_size * width
    gradients, stream = standing["parameters"], 4 * rows * spec.hidden_size
    accumulates = recipe.accumulation_steps != 1
    before: Amount = gradients if accumulates else 0  # those of the earlier micro-batches
    losses = {"losses": 4 * (recipe.accumulation_steps + 1)}  # the engine holds the gradient of the last one
    later = gradients - _first_layer_gradients(spec) - (0 if spec.tied_embeddings else matrix)
    head = {
        "gradients": before + matrix,
        "activations": activation_bytes - logits,
        "temporaries: logits": logits,
        "temporaries: gradient of the stream": 4 * rows * width,
    }
    first = {
        "gradients": before if accumulates else later,
        "activations": _first_layer(activations),
        "temporaries: gradient of the stream": stream,
    }
    embedding = {
        "gradients": gradients,
        "temporaries: embedding": matrix * (spec.tied_embeddings + accumulates),
        "temporaries: gradient of the stream": 4 * rows * width,
    }
    # Up to here the loss of this micro-batch is in `activation_bytes`; the number that scales it is gone.
    earlier = {"losses": 4 * (recipe.accumulation_steps - 1)}
    loss = {
        "gradients": before,
        "activations": activation_bytes - (8 if accumulates else 0),
        "temporaries: logits": 2 * logits,
    }
    results = {"losses": 4 * recipe.accumulation_steps, "norm": 4 if recipe.optimizer.gradient_clip > 0 else 0}
    step = {"gradients": gradients, "temporaries: optimizer": _optimizer_temporaries(spec, recipe)}
    return (
        Moment("backward of the loss", {**standing, **earlier, **loss}),
        Moment("backward of the head", {**standing, **earlier, **head}),
        Moment("backward of the first layer", {**standing, **losses, **first}),
        Moment("backward of the embedding", {**standing, **losses, **embedding}),
        *tied_sum(spec, recipe, standing, gradients),
        Moment("optimizer step", {**standing, **results, **step}),
    )


def tied_sum(spec: ModelSpec, recipe: Recipe, standing: Mapping[str, Amount], gradients: Amount) -> tuple[Moment, ...]:
    """When autograd adds the gradients of a tied matrix, the head's and the embedding's, to a third.

    None where there is no such moment: under autocast the head's, cast back, is nobody else's and takes the other's in
    place; a loss in pieces has it ready.

    Args:
        spec: the model.
        recipe: how it is trained.
        standing: bytes by part of what is alive throughout.
        gradients: bytes of all gradients, the sum's among them.
    """
    formats = FORMATS[recipe.precision]
    if not spec.tied_embeddings or formats.is_autocast or recipe.loss_chunk:
        return ()
    matrix = ELEMENT_BYTES[formats.gradient] * spec.vocab_size * _embedding_width(spec)
    losses = 4 * (recipe.accumulation_steps + 1)  # the engine holds the gradient of the last one
    beside = {"losses": losses, "gradients": gradients}
    held = matrix * (2 + (recipe.accumulation_steps != 1))
    return (Moment("sum of the tied gradients", {**standing, **beside, "temporaries: embedding": held}),)


def narrowing(own: Sequence[Parameter], buffers: Amount, precision: str) -> tuple[Moment, ...]:
    """The making of a model whose FP32 values go once they are rounded: tensor after tensor, the smallest first.

    At tensor i of n_1 ≤ n_2 ≤ ... there are the narrow ones up to it and the FP32 ones from it on. Where an optimizer
    holds next to nothing, that is more than any moment of a step if one matrix is larger than all others together.

    Args:
        own: the model's parameters.
        buffers: bytes of its buffers.
        precision: of the recipe.

    >>> own = (Parameter("norm", (10,)), Parameter("head", (100,)))
    >>> [moment.total_bytes for moment in narrowing(own, 0, "bf16-pure")]  # the head twice: 2·(10 + 100) + 4·100
    [620]
    """
    formats = FORMATS[precision]
    sizes = sorted((each.num_elements, each.times) for each in own if each.total)
    if formats.stored == "fp32" or formats.master or not sizes:
        return ()
    narrow_bytes, left = ELEMENT_BYTES[formats.stored], sum(size * times for size, times in sizes)
    done: Amount = 0
    fullest: dict[str, Amount] = {}
    for size, times in sizes:  # of equal ones the first, since each that goes leaves room
        now = {"parameters": narrow_bytes * (done + size), "temporaries: FP32 values": 4 * left}
        fullest = max(fullest, now, key=lambda parts: sum(parts.values()))
        done, left = done + size * times, left - size * times
    return (Moment("making of the model", {"buffers": buffers, **fullest}),)


def _optimizer_temporaries(spec: ModelSpec, recipe: Recipe) -> Amount:
    """AdamW over lists of tensors holds a root of every second moment of a group; the others hold next to nothing."""
    if (recipe.optimizer.kind, recipe.optimizer.implementation) != ("adamw", "foreach"):
        return 0
    moved = trained(parameters(spec, recipe))
    return 4 * max(sum(each.total for each in moved if is_decayed(each) == decays) for decays in (True, False))


def _embedding_width(spec: ModelSpec) -> Amount:
    return spec.hidden_size if spec.embedding_size is None else spec.embedding_size


def _first_layer_gradients(spec: ModelSpec) -> Amount:
    one = parameters(replace(spec, num_layers=1))
    return 4 * sum(each.total for each in one if each.name.startswith("layers."))


def _first_layer(activations: Sequence[Activation]) -> Amount:
    """Bytes of the first layer's activations: those before a name comes a second time, which the next kind begins."""
    found: Amount = 0
    names: set[str] = set()
    for each in activations:
        if each.name in names:
            break
        if each.name.startswith("layers."):
            found = found + each.num_bytes
            names.add(each.name)
    return found
