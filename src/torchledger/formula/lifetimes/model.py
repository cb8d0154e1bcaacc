"""The trainer's model as it allocates, from token ids to the loss (`trainer.model`)."""

from __future__ import annotations

from dataclasses import replace

from torchledger.formula.layout import contiguous
from torchledger.formula.lifetimes.attending import Context
from torchledger.formula.lifetimes.autograd import begun, ended
from torchledger.formula.lifetimes.checkpoint import checkpoint
from torchledger.formula.lifetimes.depth import depths, skip
from torchledger.formula.lifetimes.layers import layer
from torchledger.formula.lifetimes.losses import loss_of
from torchledger.formula.lifetimes.memory import Block
from torchledger.formula.lifetimes.modules import Module, Weights
from torchledger.formula.lifetimes.operations import add, dropped, embedding, like, plain, scale, stacked, total
from torchledger.formula.lifetimes.tensors import Tensor, made
from torchledger.formula.lifetimes.views import cast, joined
from torchledger.formula.model import needs_mask
from torchledger.formula.training import trains
from torchledger.spec import ModelSpec, Recipe


def forward(weights: Weights, spec: ModelSpec, recipe: Recipe, tokens: Tensor, targets: Tensor) -> Tensor:
    """The loss of a micro-batch."""
    memory = weights.memory
    h = _embedded(_module(weights, spec, recipe, "embedding"), tokens)
    if spec.dropout:
        h = dropped(h)
    windows = [spec.layer(index).window for index in range(spec.num_layers)]
    contexts = {window: _context(spec, recipe, h, window) for window in dict.fromkeys(windows)}
    uneven: list[Tensor] = []
    for depth in depths(spec, recipe):
        before, known = memory.total, list(memory.casts or ())
        rank = recipe.lora_rank if depth.training.adapted else 0
        module = Module(weights, spec, recipe, f"layers.{depth.index}", depth.training.trains, rank)
        is_moe = spec.layer(depth.index).is_moe
        h, *rest = _run(module, h, contexts[windows[depth.index]], is_moe=is_moe, again=depth.again)
        uneven += rest
        if depth.skipped:
            h = skip(weights, h, depth, memory.total - before, known)
    head = _module(weights, spec, recipe, "head")
    loss, others = loss_of(head, h, targets, "final_norm"), []
    if spec.num_prediction_layers:
        others.append(_predicted(weights, spec, recipe, h, targets, contexts[windows[-1]], uneven))
    if uneven:
        others.append(_weighted(uneven))
    return _beside(loss, others)


def _predicted(  # noqa: PLR0917  # what a prediction layer reads
    weights: Weights,
    spec: ModelSpec,
    recipe: Recipe,
    h: Tensor,
    targets: Tensor,
    context: Context,
    uneven: list[Tensor],
) -> Tensor:
    """The weighted loss of the prediction layers, each of which reads what the one before it made."""
    losses, last = [], spec.layer(spec.num_layers - 1)
    for number in range(spec.num_prediction_layers):
        module = Module(weights, spec, recipe, f"prediction.{number}", trains(recipe, "prediction"))
        known = _embedded(_module(weights, spec, recipe, "embedding"), _known(targets, number))
        again = recipe.recompute == "full"
        h, *rest = _run(module.inside("layer"), _joined(module, h, known), context, is_moe=last.is_moe, again=again)
        uneven += rest
        head = _module(weights, spec, recipe, "head")
        losses.append(loss_of(head, h, like(targets), "final_norm", replace(module, path=module.path)))
    return _weighted(losses)


def _known(targets: Tensor, depth: int) -> Tensor:
    """The tokens so many further on, those beyond the sequence set to one that there is."""
    further = like(targets) if depth else targets
    return like(further)


def _joined(module: Module, h: Tensor, known: Tensor) -> Tensor:
    """Stream and next token, normalized each and mapped together (`trainer.prediction`)."""
    norm = module.spec.norm
    both = joined(module.norm("hidden_norm", h, norm), module.norm("embedding_norm", known, norm))
    mapped = module.linear("projection", both, module.spec.hidden_size, inner=False)
    return cast(mapped, h.number_format)


def _weighted(losses: list[Tensor]) -> Tensor:
    return scale(losses[0] if len(losses) == 1 else total(stacked(*losses)))


def _beside(loss: Tensor, others: list[Tensor]) -> Tensor:
    """The loss as it is, with a gradient as of the sum of it and the others (`trainer.loss.beside`)."""
    if not others:
        return loss
    other = others[0] if len(others) == 1 else total(stacked(*others))
    node = begun((loss, other))
    y = like(loss)
    ended(node, lambda _, g, __: [g[0], g[0]], y)
    return y


def _module(weights: Weights, spec: ModelSpec, recipe: Recipe, part: str) -> Module:
    return Module(weights, spec, recipe, "", trains(recipe, part))


def _run(module: Module, h: Tensor, context: Context, *, is_moe: bool, again: bool) -> tuple[Tensor, ...]:
    def run(h: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        return layer(module, h, Context(mask, context.tables), is_moe=is_moe)

    if not again:
        return layer(module, h, context, is_moe=is_moe)
    return checkpoint(module.memory, run, h, context.mask, draws=module.spec.has_dropout)


def _embedded(module: Module, tokens: Tensor) -> Tensor:
    spec, memory = module.spec, module.memory
    width = spec.embedding_size or spec.hidden_size
    memory.place = "embedding"
    h = embedding(module.weights.get("embedding.weight", spec.vocab_size, width, trained=module.trained), tokens)
    if spec.embedding_size:
        h = module.linear("embedding_projection", h, spec.hidden_size, inner=False)
    if spec.embedding_scale:
        h = scale(h)
    if spec.position.kind == "learned":
        h = _positioned(module, h, tokens.shape[1])
    return module.norm("embedding_norm", h, spec.norm) if spec.embedding_norm else h


def _positioned(module: Module, h: Tensor, length: int) -> Tensor:
    spec = module.spec
    positions = made(module.memory, (length,), "int64")
    table = module.weights.get(
        "position_embedding.weight", spec.num_position_rows, spec.hidden_size, trained=module.trained
    )
    return add(h, embedding(table, plain(positions) if spec.position.offset else positions))


def _context(spec: ModelSpec, recipe: Recipe, h: Tensor, window: int) -> Context:
    tables = None
    if spec.position.kind == "rotary":
        tables = _standing(h, (recipe.sequence_length, 1, spec.rotary_size), "fp32", "buffers")
    if not needs_mask(spec, recipe, window):
        return Context(None, tables)
    return Context(_mask(spec, recipe, h, window), tables)


def _standing(like: Tensor, shape: tuple[int, ...], number_format: str, part: str) -> Tensor:
    """A tensor that is there before the step, and counted by whoever made it."""
    return Tensor(Block(like.memory, 0, part), shape, contiguous(shape), number_format)


def _mask(spec: ModelSpec, recipe: Recipe, h: Tensor, window: int) -> Tensor:
    """What is added to the scores, and what it is made from meanwhile (`trainer.position.causal_mask`)."""
    memory, length, heads = h.memory, recipe.sequence_length, spec.attention.num_heads
    sequences = (h.shape[0],) if recipe.document_mask else ()
    held = [made(memory, (length,), "int64"), made(memory, (1, length, length), "int64")]
    hidden = made(memory, (1, length, length), "bool")
    if window:
        beyond = made(memory, hidden.shape, "bool")
        either = made(memory, hidden.shape, "bool")
        del beyond
        hidden = either
        del either
    if recipe.document_mask:
        own = made(memory, (*sequences, 1, length, length), "bool")
        other = made(memory, own.shape, "bool")
        hidden = made(memory, own.shape, "bool")
        del other
        held.append(own)
    number_format = "bf16" if memory.casts is not None and h.number_format == "fp32" else h.number_format
    if spec.position.kind != "alibi":
        return made(memory, (*sequences, 1, length, length), number_format)
    negative = made(memory, (heads,), "fp32")
    bias = made(memory, (heads, length, length), "fp32")
    del negative
    if recipe.document_mask:
        return cast(made(memory, (*sequences, heads, length, length), "fp32"), number_format)
    return cast(bias, number_format)
