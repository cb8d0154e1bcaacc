"""`flowing`: of a part's exchanges those that its backward pass asks for, where not all is trained.

What comes back to a matrix that ranks split is a gradient, and nothing comes back to what nothing trained lies before.
"""

from __future__ import annotations

from torchledger.formula import Part
from torchledger.formula.training import layer_runs, trains
from torchledger.planner.exchange import Exchange
from torchledger.spec import ModelSpec, Recipe

__all__ = ["flowing"]


def flowing(exchanges: tuple[Exchange, ...], part: Part, spec: ModelSpec, recipe: Recipe) -> tuple[Exchange, ...]:
    """The exchanges that happen: all of the forward pass, and those of gradients that are needed.

    A layer runs again only if a gradient comes by. The gradient of a sum is gathered if anything in it or before it is
    trained; that of an input, which is what sums send back, if anything before it is.

    Args:
        exchanges: of one embedding, layer, prediction layer or head.
        part: which it is.
        spec: the whole model.
        recipe: what is trained.
    """
    if not recipe.trainable and not recipe.lora_rank:
        return exchanges
    return tuple(each for each in exchanges if each.phase == "forward" or _is_needed(each, part, spec, recipe))


def _is_needed(exchange: Exchange, part: Part, spec: ModelSpec, recipe: Recipe) -> bool:
    if exchange.module == "embedding":
        return trains(recipe, "embedding")
    if part.kind == "head":
        return _has_layers_before(spec, recipe) or _head_begins(spec, recipe)
    if part.kind == "prediction":  # as a whole: whatever is trained in or before it
        return trains(recipe, "prediction") or trains(recipe, "embedding") or _has_layers_before(spec, recipe)
    training = part.training
    if exchange.phase == "recompute" or exchange.op not in _OF_INPUT:
        return training.trains or training.adapted or training.reached
    if exchange.module.endswith(".mlp") and not spec.parallel:  # attention lies before it
        return training.trains or training.adapted or training.reached
    has_norm = spec.norm.placement in {"pre", "sandwich"} and spec.norm.affine
    is_inside = exchange.module not in {"layers.*.attention", "layers.*.mlp"}
    return training.reached or (training.trains and (has_norm or is_inside)) or (training.adapted and is_inside)


def _has_layers_before(spec: ModelSpec, recipe: Recipe) -> bool:
    """Whether the stream that leaves the last layer has a gradient."""
    runs = layer_runs(spec, recipe)
    return trains(recipe, "embedding") or any(training.trains or training.adapted for _, training in runs)


def _head_begins(spec: ModelSpec, recipe: Recipe) -> bool:
    """Whether what the head reads has parameters of the head's own part behind it."""
    has_norm = spec.norm.final and spec.norm.affine
    return trains(recipe, "head") and (has_norm or spec.embedding_size is not None)


#: What sends the gradient of an input back.
_OF_INPUT = frozenset({"all_reduce", "reduce_scatter"})
