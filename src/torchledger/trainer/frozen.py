"""Which parameters a recipe trains: all, those of some parts, or adapters beside them alone. The rest is frozen."""

from torchledger.formula.training import adapts, layer_runs, trains
from torchledger.spec import ModelSpec, Recipe, SpecError
from torchledger.trainer.linear import Linear
from torchledger.trainer.model import Transformer

__all__ = ["adapt", "freeze"]


def adapt(model: Transformer, rank: int, targets: tuple[str, ...] = ()) -> None:
    """Put an adapter of this rank beside linear layers of attention and MLP (LoRA, arXiv:2106.09685, section 4).

    All of them, or those whose last name is among the targets. Routers and gates of shared experts have none: they
    choose, and map to a few numbers.

    Raises:
        SpecError: the model has no layer of that name.
    """
    found = [
        module
        for name, module in model.layers.named_modules()
        if isinstance(module, Linear) and not name.endswith("shared_gate") and adapts(name, targets)
    ]
    if not found:
        raise SpecError(
            f"lora_targets: {model.spec.name} has none of {', '.join(targets)}; name a linear layer that is there"
        )
    for linear in found:
        linear.adapt(rank)


def freeze(model: Transformer, recipe: Recipe) -> None:
    """Let only those parameters take gradients that the recipe trains.

    Raises:
        SpecError: nothing of the model is trained.
    """
    if not recipe.trainable and not recipe.lora_rank:
        return
    layers = _trained_layers(model.spec, recipe)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(_is_trained(name, model.spec, recipe, layers))
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise SpecError(
            f"trainable: {', '.join(recipe.trainable)} has no parameters in {model.spec.name}, so nothing would be "
            "trained; name a part that is there (embedding, layers, head)"
        )


def _trained_layers(spec: ModelSpec, recipe: Recipe) -> frozenset[int]:
    runs = layer_runs(spec, recipe)
    return frozenset(run.first + i for run, training in runs if training.trains for i in range(run.count))


def _is_trained(name: str, spec: ModelSpec, recipe: Recipe, layers: frozenset[int]) -> bool:
    part, _, rest = name.partition(".")
    if part == "layers":
        return ".lora_" in name or (not recipe.lora_rank and int(rest.partition(".")[0]) in layers)
    if part == "prediction":
        return trains(recipe, "prediction")
    if part == "head" and spec.tied_embeddings:  # a tied head is the embedding
        return trains(recipe, "embedding")
    is_behind = part in {"final_norm", "embedding_projection_out", "head"}
    return trains(recipe, "head" if is_behind else "embedding")
