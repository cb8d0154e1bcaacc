"""The moments of a training step that can be its peak, each with what is alive in it.

What the backward pass makes inside a layer for itself is not in them, so that each is a lower bound of the peak; where
the logits are large, as in most training, the loss's backward is the peak and exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torchledger.formula.optimizer import is_decayed, trained
from torchledger.formula.parameters import parameters
from torchledger.formula.precision import FORMATS
from torchledger.formula.value import Activation
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
        "temporaries: gradient of the stream": stream,
    }
    # A head's gradient that autocast cast back is nobody else's, so that autograd adds the embedding's to it in place.
    is_summed_apart = spec.tied_embeddings and not FORMATS[recipe.precision].is_autocast
    tied = {"gradients": gradients, "temporaries: embedding": matrix * (2 + accumulates)}
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
        *((Moment("sum of the tied gradients", {**standing, **losses, **tied}),) if is_summed_apart else ()),
        Moment("optimizer step", {**standing, **results, **step}),
    )


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
