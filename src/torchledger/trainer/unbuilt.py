"""What a recipe can say and this trainer does not do: refused by name, all of it at once."""

from collections.abc import Iterator

from torchledger.spec import Recipe
from torchledger.spec.check import Mistake, refuse
from torchledger.trainer.precision import BUILT

__all__ = ["require_built_recipe"]

_WHY = "the planner and the formulas know it, the trainer does not do it"
_OFFLOAD = "on a CPU everything is there already, and on a GPU the planner knows it and the trainer does not do it"


def require_built_recipe(recipe: Recipe) -> None:
    """Refuse a recipe that the trainer would run as another one.

    Raises:
        SpecError: with every such field in it.
    """
    refuse("the recipe cannot be run here", list(_of_recipe(recipe)))


def _of_recipe(recipe: Recipe) -> Iterator[Mistake]:
    known = {
        "precision": (recipe.precision, BUILT),
    }
    for name, (value, choices) in known.items():
        if value not in choices:
            yield name, f"{value!r}: {_WHY}; use {' or '.join(choices)}"
    if recipe.precision == "fp16" and recipe.loss_chunk > 0:
        yield "loss_chunk", "makes gradients before the loss scale of fp16 reaches them, and most become 0; set it to 0"
    if recipe.offload_activations > 0:
        yield "offload_activations", f"activations in host memory: {_OFFLOAD}; set it to 0, or use recompute"
    if recipe.offload_optimizer:
        yield "offload_optimizer", f"optimizer state in host memory: {_OFFLOAD}; set it to false, or shard it"
