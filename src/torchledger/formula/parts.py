"""`parts`: the model in parts that add up, one micro-batch of each: the embedding, a layer of every kind, the head.

A planner that spreads a model over ranks needs a layer's cost once, not a whole model's cost for every layout. Added up
with their numbers, the parts are `count` and `memory` to the last FLOP and byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from torchledger import ops
from torchledger.formula.core import Context
from torchledger.formula.model import stream_kinds, walk_embedding, walk_head, walk_layer
from torchledger.formula.optimizer import trained
from torchledger.formula.parameters import Parameter, embedding_parameters, head_parameters, layer_parameters
from torchledger.formula.tape import Activation, Tape, Value
from torchledger.ledger import Amount, Line
from torchledger.spec import LayerGroup, ModelSpec, Recipe

PartKind = Literal["embedding", "layer", "prediction", "head"]


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a model, what it costs for one micro-batch and what it keeps.

    Attributes:
        name: unique in a model: `embedding`, `layer`, `layer window 4096`, `mixture layer`, `head`.
        kind: what it is.
        layer: which layers are like this one: window, mixture or not, index of the first, number of all; nothing where
            it is no layer.
        lines: its forward, recompute and backward lines, once.
        accumulation: the lines that add its gradients to those of an earlier micro-batch, once; a step of n
            micro-batches runs them n - 1 times.
        activations: what it keeps until its backward pass; with recompute, what stays after the layer has run.
        parameters: its parameters; a tied head's names the embedding that it is.
        recomputed_bytes: what recompute makes again for its backward pass; 0 without.
        forward_temporary_bytes: the most that its forward pass holds beside what it keeps.
        backward_temporary_bytes: the most that its backward pass holds beside what is kept and made again.
    """

    name: str
    kind: PartKind
    layer: LayerGroup | None
    lines: tuple[Line, ...]
    accumulation: tuple[Line, ...]
    activations: tuple[Activation, ...]
    parameters: tuple[Parameter, ...]
    recomputed_bytes: Amount
    forward_temporary_bytes: Amount
    backward_temporary_bytes: Amount

    @property
    def times(self) -> Amount:
        """How many of it the model has."""
        return 1 if self.layer is None else self.layer.count

    @property
    def kept_bytes(self) -> Amount:
        """Bytes of all its activations."""
        return sum(each.total_bytes for each in self.activations)


def parts(spec: ModelSpec, recipe: Recipe) -> tuple[Part, ...]:
    """The model's parts in order: embedding, one layer of every kind that there is, head with the loss.

    Args:
        spec: the model, or the share of one that a rank holds: fewer heads, a narrower MLP, fewer rows of the
            vocabulary, fewer experts than a token visits.
        recipe: how it is trained; its micro-batch is what a part runs.

    >>> from torchledger.spec import AttentionSpec, MlpSpec
    >>> tiny = ModelSpec("tiny", 100, 64, 2, 32, AttentionSpec(4), MlpSpec(64))
    >>> [(each.name, each.times) for each in parts(tiny, Recipe(batch_size=2, sequence_length=8))]
    [('embedding', 1), ('layer', 2), ('head', 1)]
    """
    first = Tape(recipe.precision)
    h, contexts = walk_embedding(first, spec, recipe)
    layers = []
    names: set[str] = set()
    for (window, is_moe, number_format), group in stream_kinds(spec, h.number_format).items():
        tape = Tape(recipe.precision)
        with tape.inside("layers.*"):
            x = tape.make("input", h.shape, number_format)
            context = _there(tape, contexts[window])
            h = walk_layer(tape, spec, recipe, x, context, is_moe=is_moe)
        if context.mask is not None and (keeper := tape.keeper(context.mask)):
            first.save(keeper, *(() if contexts[window].mask is None else (contexts[window].mask,)))
        name = _name(group, names)
        names.add(name)
        layers.append(_part(name, "layer", tape, layer_parameters(spec, is_moe=is_moe), group))
    last = Tape(recipe.precision)
    walk_head(last, spec, recipe, last.make("input", h.shape, h.number_format))
    embedding = _part("embedding", "embedding", first, embedding_parameters(spec))
    head = _part("head", "head", last, head_parameters(spec))
    if spec.tied_embeddings:  # the lookup's gradient and the head's
        head = replace(head, lines=(*head.lines, *_added(embedding.parameters[0].total, "embedding")))
    return (embedding, *layers, head)


def _part(
    name: str, kind: PartKind, tape: Tape, parameters: tuple[Parameter, ...], layer: LayerGroup | None = None
) -> Part:
    return Part(
        name=name,
        kind=kind,
        layer=layer,
        lines=tuple(tape.lines()),
        accumulation=tuple(_added(sum(each.total for each in trained(parameters)), "")),
        activations=tape.activations(),
        parameters=parameters,
        recomputed_bytes=sum(each.total_bytes for each in tape.activations(recomputed=True)),
        forward_temporary_bytes=tape.largest_temporary(),
        backward_temporary_bytes=2 * tape.largest_storage(),
    )


def _there(tape: Tape, context: Context) -> Context:
    """The same for a tape of its own: the mask is somebody else's."""
    mask: Value | None = context.mask
    if mask is None:
        return context
    return replace(context, mask=tape.given("mask", mask.shape, mask.number_format))


def _name(group: LayerGroup, taken: set[str]) -> str:
    name = ("mixture layer" if group.is_moe else "layer") + (f" window {group.window}" if group.window else "")
    return f"{name} from {group.first}" if name in taken else name


def _added(elements: Amount, module: str) -> Iterator[Line]:
    for piece in ops.gradient_accumulation(elements):
        yield piece.line(module, phase="backward")
