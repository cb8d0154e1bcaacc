"""What makes a `Recipe` or a `Strategy` impossible: every mistake at once, with the path of its field."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torchledger.spec.check import Mistake, refuse
from torchledger.spec.model import ModelSpec
from torchledger.spec.recipe import OptimizerSpec, Recipe
from torchledger.spec.strategy import Strategy

_SIZES = (
    "data_parallel",
    "tensor_parallel",
    "pipeline_parallel",
    "context_parallel",
    "expert_parallel",
    "virtual_stages",
)

_MAY_BE_NONE = ("shard_group", "prefetch", "expert_tensor_parallel", "micro_batch_size")


def recipe_mistakes(recipe: Recipe, spec: ModelSpec | None = None) -> list[Mistake]:
    """Every reason why the recipe cannot be, as (dotted path, message); with a model, also why not for this one.

    >>> recipe_mistakes(Recipe(batch_size=8, accumulation_steps=3))
    [('accumulation_steps', '3 does not divide batch_size 8; every micro-batch has equally many sequences')]
    """
    return [
        *_batch(recipe),
        *_fits(recipe, spec),
        *_saved(recipe),
        *_trained(recipe, spec),
        *_begun(recipe, spec),
        *_optimizer(recipe.optimizer),
    ]


def strategy_mistakes(strategy: Strategy) -> list[Mistake]:
    """Every reason why the strategy cannot be, as (dotted path, message)."""
    found = [
        (name, f"must be at least 1, is {getattr(strategy, name)}") for name in _SIZES if getattr(strategy, name) < 1
    ]
    if strategy.shard_level not in range(4):
        found.append(("shard_level", f"must be 0, 1, 2 or 3 (ZeRO's stages), is {strategy.shard_level}"))
    found += [
        (name, f"must be at least 0, is {getattr(strategy, name)}")
        for name in _MAY_BE_NONE
        if getattr(strategy, name) < 0
    ]
    within = strategy.expert_tensor_parallel or strategy.tensor_parallel
    ranks = strategy.data_parallel * strategy.context_parallel * strategy.tensor_parallel
    if not found and ranks % (strategy.expert_parallel * within) != 0:
        taken = (
            f"{strategy.expert_parallel} · {within} ranks of each expert" if within > 1 else strategy.expert_parallel
        )
        message = f"{taken} does not divide the {ranks} data, context and tensor parallel ranks it is taken from"
        found.append(("expert_parallel", message))
    return found


def require_recipe(recipe: Recipe, spec: ModelSpec | None = None) -> None:
    """Refuse a recipe that cannot be.

    Raises:
        SpecError: with every mistake in it.
    """
    refuse("recipe", recipe_mistakes(recipe, spec))


def require_strategy(strategy: Strategy) -> None:
    """Refuse a strategy that cannot be.

    Raises:
        SpecError: with every mistake in it.
    """
    refuse("strategy", strategy_mistakes(strategy))


def _batch(recipe: Recipe) -> Iterator[Mistake]:
    sizes = {
        "batch_size": recipe.batch_size,
        "sequence_length": recipe.sequence_length,
        "accumulation_steps": recipe.accumulation_steps,
    }
    small = [(name, f"must be at least 1, is {value}") for name, value in sizes.items() if value < 1]
    yield from small
    if not small and recipe.batch_size % recipe.accumulation_steps != 0:
        steps, batch = recipe.accumulation_steps, recipe.batch_size
        message = f"{steps} does not divide batch_size {batch}; every micro-batch has equally many sequences"
        yield "accumulation_steps", message
    for name, value in (("num_tokens", recipe.num_tokens), ("seed", recipe.seed)):
        if value < 0:
            yield name, f"must be at least 0, is {value}"


def _fits(recipe: Recipe, spec: ModelSpec | None) -> Iterator[Mistake]:
    if spec is None:
        return
    longest = spec.max_sequence_length
    if spec.position.kind == "learned" and recipe.sequence_length > longest:
        yield "sequence_length", f"{recipe.sequence_length} is more than the {longest} learned positions of {spec.name}"
    further = spec.num_prediction_layers
    if 1 <= recipe.sequence_length <= further:
        message = f"{recipe.sequence_length} leaves the last of {further} prediction layers no token to predict"
        yield "sequence_length", f"{message}; give {further + 1} or more, or fewer model.num_prediction_layers"


def _saved(recipe: Recipe) -> Iterator[Mistake]:
    """What is made again or put away to save memory."""
    if recipe.recompute_layers < 0:
        yield "recompute_layers", f"must be at least 0 (all of them), is {recipe.recompute_layers}"
    if recipe.recompute_layers > 0 and recipe.recompute != "full":
        yield "recompute_layers", f'is for recompute "full" only; recompute is {recipe.recompute!r}'
    if recipe.recompute_every < 1:
        yield "recompute_every", f"must be at least 1 (every layer), is {recipe.recompute_every}"
    if recipe.recompute_every > 1 and recipe.recompute != "full":
        yield "recompute_every", f'is for recompute "full" only; recompute is {recipe.recompute!r}'
    if recipe.recompute_every > 1 and recipe.recompute_layers > 0:
        yield "recompute_every", "says which layers are run again, and so does recompute_layers; leave one of both out"
    if recipe.loss_chunk < 0:
        yield "loss_chunk", f"must be at least 0 (all tokens at once), is {recipe.loss_chunk}"
    if not 0 <= recipe.offload_activations <= 1:
        yield "offload_activations", f"is a share: at least 0 and at most 1, is {recipe.offload_activations}"


def _trained(recipe: Recipe, spec: ModelSpec | None) -> Iterator[Mistake]:
    """What is trained: adapters or parts."""
    if recipe.lora_rank < 0:
        yield "lora_rank", f"must be at least 0 (no adapters), is {recipe.lora_rank}"
    if not 0 <= recipe.load_balance < math.inf:
        yield "load_balance", f"must be at least 0 (no such loss) and finite, is {recipe.load_balance}"
    if recipe.load_balance > 0 and spec is not None and spec.moe is None:
        yield "load_balance", f"balances experts, and {spec.name} has none; set it to 0"
    if recipe.lora_rank > 0 and recipe.trainable:
        yield "trainable", "adapters are the only thing trained with lora_rank; leave one of both out"
    if recipe.lora_targets and not recipe.lora_rank:
        yield "lora_targets", "are the layers that adapters of lora_rank stand beside; set lora_rank, too"
    for name in recipe.lora_targets:
        if name not in _ADAPTED:
            yield "lora_targets", f"{name!r} is no linear layer of attention or MLP; there are {', '.join(_ADAPTED)}"
    for name in recipe.trainable:
        if name in _PARTS:
            continue
        first, dash, last = name.removeprefix("layers.").partition("-")
        if not name.startswith("layers.") or not first.isdecimal() or (dash and not last.isdecimal()):
            yield "trainable", f"{name!r} is no part; there are {', '.join(_PARTS)}, layers.3 and layers.24-31"
        elif int(last or first) < int(first):
            yield "trainable", f"{name!r} ends before it begins"
        elif spec is not None and int(last or first) >= spec.num_layers:
            yield "trainable", f"{name!r} is beyond the {spec.num_layers} layers of {spec.name}, which count from 0"


def _begun(recipe: Recipe, spec: ModelSpec | None) -> Iterator[Mistake]:
    """How first values are drawn."""
    if recipe.mup_base_size < 1:
        yield "mup_base_size", f"must be at least 1, is {recipe.mup_base_size}"
    if recipe.initialization != "mup":
        return
    if spec is not None and spec.tied_embeddings:
        message = "mup gives embedding and head other values and rates, so the head cannot be the embedding"
        yield "initialization", f"{message}; set model.tied_embeddings to false"
    if recipe.optimizer.kind in {"adafactor", "muon"}:
        message = "mup has learning rates for SGD and for Adam and its kin (adamw, adamw-8bit, lion)"
        yield "initialization", f"{message}, not for {recipe.optimizer.kind}"


#: Parts that a recipe can train; layers also by number.
_PARTS = ("embedding", "layers", "prediction", "head")
#: Linear layers that may have an adapter; those of latent attention have names of their own.
_ADAPTED = (
    *("query", "key", "value", "output", "query_down", "query_up", "key_value_down", "key_value_up"),
    *("gate", "up", "down"),
)
#: Optimizers that read `momentum`.
_WITH_MOMENTUM = ("sgd", "muon")


def _optimizer(optimizer: OptimizerSpec) -> Iterator[Mistake]:
    for name in ("learning_rate", "epsilon"):
        value = getattr(optimizer, name)
        if not 0 < value < math.inf:
            yield f"optimizer.{name}", f"must be more than 0 and finite, is {value}"
    for name in ("beta1", "beta2", "momentum"):
        value = getattr(optimizer, name)
        if not 0 <= value < 1:
            yield f"optimizer.{name}", f"must be at least 0 and below 1, is {value}"
    if 0 < optimizer.momentum < 1 and optimizer.kind not in _WITH_MOMENTUM:
        known = (
            f"{optimizer.kind} averages gradients by beta1" if optimizer.kind != "adafactor" else "adafactor has none"
        )
        yield "optimizer.momentum", f"is for {' and '.join(_WITH_MOMENTUM)}; {known}; leave it out or set it to 0"
    for name in ("weight_decay", "gradient_clip", "warmup_steps"):
        value = getattr(optimizer, name)
        if value < 0:
            yield f"optimizer.{name}", f"must be at least 0, is {value}"
    if optimizer.weight_decay == math.inf:  # an infinite clip is none, and tells the norm
        yield "optimizer.weight_decay", "must be finite, is inf"
    if not 0 < optimizer.decay_fraction <= 1:
        yield "optimizer.decay_fraction", f"must be above 0 and at most 1, is {optimizer.decay_fraction}"
    if not 0 <= optimizer.final_fraction <= 1:
        yield "optimizer.final_fraction", f"must be at least 0 and at most 1, is {optimizer.final_fraction}"
