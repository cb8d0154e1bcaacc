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
    training, module = part.training, exchange.module
    own = training.trains or (training.adapted and _adapts(recipe, _ADAPTED_IN[_half(module)]))
    if _half(module) == "mlp" and not spec.parallel:  # attention lies before it
        before = training.trains or training.reached or (training.adapted and _adapts(recipe, _ADAPTED_IN["attention"]))
    else:
        has_norm = spec.norm.placement in {"pre", "sandwich"} and spec.norm.affine
        before = training.reached or (training.trains and has_norm)
    if exchange.phase == "recompute":
        return training.trains or training.adapted or training.reached
    if module not in {"layers.*.attention", "layers.*.mlp"}:
        makers = _MAKERS.get(module.rpartition(".")[2], _ADAPTED_IN[_half(module)])
        return before or training.trains or (training.adapted and _adapts(recipe, makers))
    return before if exchange.op in _OF_INPUT else before or own


def _half(module: str) -> str:
    return "mlp" if ".mlp" in module else "attention"


def _adapts(recipe: Recipe, names: frozenset[str]) -> bool:
    """Whether any of these linear layers has an adapter."""
    return not recipe.lora_targets or not names.isdisjoint(recipe.lora_targets)


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
_OF_QUERY = frozenset({"query", "query_down", "query_up"})
_OF_KEY = frozenset({"key", "key_value_down", "key_value_up"})
#: Linear layers of a layer's halves, by the names that adapters are asked for by.
_ADAPTED_IN = {
    "attention": _OF_QUERY | _OF_KEY | {"value", "output"},
    "mlp": frozenset({"gate", "up", "down"}),
}
#: Of exchanges inside a half, the linear layers that make what is exchanged.
_MAKERS = {"query_norm": _OF_QUERY, "key_norm": _OF_KEY, "core": _OF_QUERY | _OF_KEY | {"value"}}
