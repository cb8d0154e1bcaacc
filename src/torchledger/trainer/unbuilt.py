"""What a recipe can say and this trainer does not do: refused by name, all of it at once."""

from collections.abc import Iterator

from torchledger.spec import Recipe, Strategy
from torchledger.spec.check import Mistake, refuse
from torchledger.trainer.precision import BUILT

__all__ = ["NO_FUSED_SGD", "require_built_recipe", "require_spreadable", "spreadable"]

_ELEMENTWISE = frozenset({"adamw", "sgd", "lion"})

#: DTensor has no rule for `_fused_sgd_`.
NO_FUSED_SGD = "torch has no fused kernel of SGD for tensors in shares"

_WHY = "the planner and the formulas know it, the trainer does not do it"
_OFFLOAD = "on a CPU everything is there already, and on a GPU the planner knows it and the trainer does not do it"


def require_built_recipe(recipe: Recipe) -> None:
    """Refuse a recipe that the trainer would run as another one.

    Raises:
        SpecError: with every such field in it.
    """
    refuse("the recipe cannot be run here", list(_of_recipe(recipe)))


def require_spreadable(recipe: Recipe, strategy: Strategy) -> None:
    """Refuse a recipe whose update needs whole tensors where ranks hold shares of them.

    Raises:
        SpecError: with every such field in it.
    """
    if strategy.shard_level == 0 and strategy.tensor_parallel == 1:
        return
    found = []
    if (kind := recipe.optimizer.kind) not in (built := spreadable(strategy)):
        known = ", ".join(sorted(built))
        found.append(("optimizer.kind", f"{kind!r} looks at whole tensors; shard nothing, or use {known}"))
    elif kind == "sgd" and recipe.optimizer.implementation == "fused":
        found.append(("optimizer.implementation", f"{NO_FUSED_SGD}; use foreach or loop"))
    refuse("the recipe cannot be run in shares", found)


def spreadable(strategy: Strategy) -> frozenset[str]:
    """Optimizers that run where ranks hold shares of tensors.

    The update of an element needs that element's own gradient and state alone; Muon gathers each of its matrices,
    which is built for shards (FSDP2) and not for matrices that tensor parallel ranks split.
    """
    return _ELEMENTWISE if strategy.tensor_parallel > 1 else _ELEMENTWISE | {"muon"}


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
