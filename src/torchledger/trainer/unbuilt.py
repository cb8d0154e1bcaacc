"""What a spec or a recipe can say and this trainer does not do: refused by name, all of it at once."""

from collections.abc import Iterator

from torchledger.spec import ModelSpec, Recipe
from torchledger.spec.check import Mistake, refuse

__all__ = ["require_built", "require_built_recipe"]

_WHY = "the planner and the formulas know it, the trainer does not do it"


def require_built(spec: ModelSpec) -> None:
    """Refuse a model of which the trainer would leave something out.

    Raises:
        SpecError: with every such field in it.
    """
    refuse(f"{spec.name or 'the model'} cannot be trained here", list(_of_model(spec)))


def require_built_recipe(recipe: Recipe) -> None:
    """Refuse a recipe that the trainer would run as another one.

    Raises:
        SpecError: with every such field in it.
    """
    refuse("the recipe cannot be run here", list(_of_recipe(recipe)))


def _of_model(spec: ModelSpec) -> Iterator[Mistake]:
    if spec.num_prediction_layers > 0:
        yield "num_prediction_layers", f"multi-token prediction: {_WHY}; set it to 0"
    if spec.moe is not None and spec.moe.capacity_factor > 0:
        yield "moe.capacity_factor", f"experts of a fixed capacity: {_WHY}; set it to 0, which drops no token"


def _of_recipe(recipe: Recipe) -> Iterator[Mistake]:
    known = {
        "precision": (recipe.precision, ("fp32", "bf16")),
    }
    for name, (value, choices) in known.items():
        if value not in choices:
            yield name, f"{value!r}: {_WHY}; use {' or '.join(choices)}"
    if recipe.offload_activations > 0:
        yield "offload_activations", f"activations in host memory: {_WHY}; set it to 0"
    if recipe.offload_optimizer:
        yield "offload_optimizer", f"optimizer state in host memory: {_WHY}; set it to false"
