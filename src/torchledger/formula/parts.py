"""`parts`: the model in parts that add up, one micro-batch of each: the embedding, a layer of every kind, the head.

A planner that spreads a model over ranks needs a layer's cost once, not a whole model's cost for every layout. Added up
with their numbers, the parts are `count` and `memory` to the last FLOP and byte.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from torchledger.formula.count import accumulation_lines, prediction_lines, shared_lines
from torchledger.formula.heads import Context
from torchledger.formula.kernels import Kernels, kernels_of
from torchledger.formula.model import (
    LayerKind,
    layer_kinds_of,
    walk_embedding,
    walk_head,
    walk_layer,
    walk_prediction,
)
from torchledger.formula.parameters import (
    Parameter,
    embedding_parameters,
    head_parameters,
    layer_parameters,
    prediction_parameters,
)
from torchledger.formula.sweep import backward_temporary_bytes, forward_temporary_bytes
from torchledger.formula.tape import Tape
from torchledger.formula.training import WHOLE, Training
from torchledger.formula.value import Activation, Value
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
        recomputed: what recompute makes again for its backward pass; nothing without.
        forward_temporary_bytes: the most that its forward pass holds beside what it keeps.
        backward_temporary_bytes: the most that its backward pass holds beside what is kept and made again.
        runs: where in the depth such layers are, as runs of neighbours; nothing where it is no layer.
        training: what is trained of such a layer; of what is no layer it says nothing.
        read_formats: of a layer, `attention` and `mlp` with the format of what each reads.
    """

    name: str
    kind: PartKind
    layer: LayerGroup | None
    lines: tuple[Line, ...]
    accumulation: tuple[Line, ...]
    activations: tuple[Activation, ...]
    parameters: tuple[Parameter, ...]
    recomputed: tuple[Activation, ...]
    forward_temporary_bytes: Amount
    backward_temporary_bytes: Amount
    runs: tuple[LayerGroup, ...] = ()
    training: Training = WHOLE
    read_formats: tuple[tuple[str, str], ...] = ()

    @property
    def times(self) -> Amount:
        """How many of it the model has."""
        return 1 if self.layer is None else self.layer.count

    @property
    def recomputed_bytes(self) -> Amount:
        """Bytes of all that is made again."""
        return sum(each.total_bytes for each in self.recomputed)

    @property
    def kept_bytes(self) -> Amount:
        """Bytes of all its activations."""
        return sum(each.total_bytes for each in self.activations)


def parts(
    spec: ModelSpec, recipe: Recipe, *, kernels: Kernels | str = "cpu", by_layer: bool = False
) -> tuple[Part, ...]:
    """The model's parts in order: embedding, a layer of every kind, a prediction layer if there are any, head and loss.

    Args:
        spec: the model, or the share of one that a rank holds: fewer heads, a narrower MLP, fewer rows of the
            vocabulary, fewer experts than a token visits.
        recipe: how it is trained; its micro-batch is what a part runs.
        kernels: which kernels run, a set or its name (`KERNELS`).
        by_layer: whether layers that run again are told from those that do not, where the recipe names some of all;
            else all are as its `recompute` says.

    Raises:
        SpecError: no kernels of that name.

    >>> from torchledger.spec import AttentionSpec, MlpSpec
    >>> tiny = ModelSpec("tiny", 100, 64, 2, 32, AttentionSpec(4), MlpSpec(64))
    >>> [(each.name, each.times) for each in parts(tiny, Recipe(batch_size=2, sequence_length=8))]
    [('embedding', 1), ('layer', 2), ('head', 1)]
    """
    chosen = kernels_of(kernels)
    first = Tape(recipe.precision, chosen)
    h, contexts = walk_embedding(first, spec, recipe)
    layers = []
    names: set[str] = set()
    for kind, runs in layer_kinds_of(spec, recipe, h.number_format, chosen, by_layer=by_layer).items():
        tape = Tape(recipe.precision, chosen)
        with tape.inside("layers.*"):
            x = tape.make("input", h.shape, kind.number_format, requires_grad=kind.training.reached)
            context = _there(tape, contexts[kind.window])
            h = walk_layer(tape, spec, recipe, x, context, kind=kind)
        _keep_mask(first, contexts[kind.window], tape, context)
        own = layer_parameters(spec, recipe, kind.training, is_moe=kind.is_moe)
        part = _part(_name(runs[0], kind, names), "layer", recipe, tape, own, runs)
        layers.append(replace(part, training=kind.training))
        names.add(layers[-1].name)
    last = Tape(recipe.precision, chosen)
    last.fan_out("", h, 1 + spec.num_prediction_layers)
    received = last.make("input", h.shape, h.number_format, requires_grad=h.requires_grad)
    received = last.receive("output of the last layer", received)
    walk_head(last, spec, recipe, received)
    embedding = _part("embedding", "embedding", recipe, first, embedding_parameters(spec, recipe))
    head = _part("head", "head", recipe, last, head_parameters(spec, recipe))
    if spec.num_prediction_layers:
        is_kept = last.keeper(received) != ""
        layers.append(_prediction(spec, recipe, chosen, h, contexts, first, is_kept=is_kept))
        embedding = replace(embedding, activations=first.activations())
    if spec.tied_embeddings:
        head = replace(head, lines=(*head.lines, *shared_lines(spec, recipe)))
    return (embedding, *layers, head)


def _prediction(  # noqa: PLR0917  # what a part is made of
    spec: ModelSpec,
    recipe: Recipe,
    kernels: Kernels,
    h: Value,
    contexts: dict[int, Context],
    first: Tape,
    *,
    is_kept: bool,
) -> Part:
    """The layer that predicts one token further; embedding and head get a gradient from it too.

    What it reads may be kept by the head already, which then accounts for it.
    """
    tape, last = Tape(recipe.precision, kernels), spec.layer_groups[-1]
    with tape.inside("prediction.*"):
        context = _there(tape, contexts[last.window])
        make = tape.given if is_kept else tape.make
        x = make("input", h.shape, h.number_format, requires_grad=h.requires_grad)
        walk_prediction(tape, spec, recipe, x, context)
    _keep_mask(first, contexts[last.window], tape, context)
    group = LayerGroup(last.window, last.is_moe, spec.num_layers, spec.num_prediction_layers)
    own = prediction_parameters(spec, recipe)
    part = _part("prediction layer", "prediction", recipe, tape, own, (group,))
    return replace(part, lines=(*part.lines, *prediction_lines(spec, recipe)))


def _part(  # noqa: PLR0917  # what a part is made of
    name: str,
    kind: PartKind,
    recipe: Recipe,
    tape: Tape,
    parameters: tuple[Parameter, ...],
    runs: tuple[LayerGroup, ...] = (),
) -> Part:
    count: Amount = sum(run.count for run in runs)
    return Part(
        name=name,
        kind=kind,
        layer=replace(runs[0], count=count) if runs else None,
        lines=tuple(tape.lines()),
        accumulation=tuple(accumulation_lines(parameters, recipe)),
        activations=tape.activations(),
        parameters=parameters,
        recomputed=tape.activations(recomputed=True),
        forward_temporary_bytes=forward_temporary_bytes(tape),
        backward_temporary_bytes=backward_temporary_bytes(tape),
        runs=runs,
        read_formats=tuple(tape.read_formats.items()),
    )


def _there(tape: Tape, context: Context) -> Context:
    """The same for a tape of its own: the mask is somebody else's."""
    mask: Value | None = context.mask
    if mask is None:
        return context
    return replace(context, mask=tape.given("mask", mask.shape, mask.number_format))


def _keep_mask(maker: Tape, made: Context, tape: Tape, there: Context) -> None:
    """A mask that a layer keeps is an activation of the part that made it."""
    if made.mask is not None and there.mask is not None and (keeper := tape.keeper(there.mask)):
        maker.save(keeper, made.mask)


def _name(group: LayerGroup, kind: LayerKind, taken: set[str]) -> str:
    training = kind.training
    name = "" if training.trains or training.adapted else "frozen "
    name += ("mixture layer" if group.is_moe else "layer") + (f" window {group.window}" if group.window else "")
    return f"{name} from {group.first}" if name in taken else name
