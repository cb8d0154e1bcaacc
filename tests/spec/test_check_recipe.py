import math
from dataclasses import replace

import pytest

from torchledger.spec import (
    AttentionSpec,
    MlpSpec,
    ModelSpec,
    OptimizerSpec,
    Recipe,
    SpecError,
    Strategy,
    presets,
    recipe_mistakes,
    require_recipe,
    require_strategy,
    strategy_mistakes,
)


def optimizer(**changes):
    return Recipe(optimizer=OptimizerSpec(**changes))


def test_the_defaults_can_be():
    """The recipe and the strategy that nobody changed have no mistake."""
    assert recipe_mistakes(Recipe()) == []
    assert strategy_mistakes(Strategy()) == []


@pytest.mark.parametrize(
    ("recipe", "place"),
    [
        (Recipe(batch_size=0), "batch_size"),
        (Recipe(sequence_length=0), "sequence_length"),
        (Recipe(accumulation_steps=0), "accumulation_steps"),
        (Recipe(batch_size=8, accumulation_steps=3), "accumulation_steps"),
        (Recipe(num_tokens=-1), "num_tokens"),
        (Recipe(seed=-1), "seed"),
        (optimizer(learning_rate=0.0), "optimizer.learning_rate"),
        (optimizer(learning_rate=math.inf), "optimizer.learning_rate"),
        (optimizer(epsilon=0.0), "optimizer.epsilon"),
        (optimizer(epsilon=math.inf), "optimizer.epsilon"),
        (optimizer(weight_decay=math.inf), "optimizer.weight_decay"),
        (Recipe(load_balance=math.inf), "load_balance"),
        (optimizer(beta1=1.0), "optimizer.beta1"),
        (optimizer(beta2=-0.1), "optimizer.beta2"),
        (optimizer(momentum=1.5), "optimizer.momentum"),
        (optimizer(momentum=0.9), "optimizer.momentum"),
        (optimizer(kind="adafactor", momentum=0.9), "optimizer.momentum"),
        (optimizer(weight_decay=-0.1), "optimizer.weight_decay"),
        (optimizer(gradient_clip=-1.0), "optimizer.gradient_clip"),
        (optimizer(warmup_steps=-1), "optimizer.warmup_steps"),
        (optimizer(final_fraction=1.5), "optimizer.final_fraction"),
    ],
)
def test_a_mistake_is_found_at_its_field(recipe, place):
    """Each impossible value is one mistake, told at the path of its field."""
    assert [found for found, _ in recipe_mistakes(recipe)] == [place]


@pytest.mark.parametrize("kind", ["sgd", "muon"])
def test_momentum_is_for_those_that_have_it(kind):
    """SGD and Muon read `momentum`; of any other optimizer it would change nothing, so it is a mistake there."""
    assert recipe_mistakes(optimizer(kind=kind, momentum=0.9)) == []


def test_learned_positions_end_somewhere():
    """A sequence longer than the learned table is a mistake; rotary positions go on."""
    recipe = Recipe(sequence_length=1025)
    assert [place for place, _ in recipe_mistakes(recipe, presets.get("gpt2"))] == ["sequence_length"]
    assert recipe_mistakes(replace(recipe, sequence_length=1024), presets.get("gpt2")) == []
    assert recipe_mistakes(replace(recipe, sequence_length=9000), presets.get("llama-3-8b")) == []


@pytest.mark.parametrize(
    ("strategy", "place"),
    [
        (Strategy(tensor_parallel=0), "tensor_parallel"),
        (Strategy(shard_level=4), "shard_level"),
        (Strategy(shard_level=-1), "shard_level"),
        (Strategy(micro_batch_size=-1), "micro_batch_size"),
        (Strategy(shard_group=-2), "shard_group"),
        (Strategy(prefetch=-1), "prefetch"),
        (Strategy(data_parallel=6, expert_parallel=4), "expert_parallel"),
    ],
)
def test_a_strategy_that_cannot_be(strategy, place):
    """Group sizes are at least 1, ZeRO has three stages, experts are spread over data-parallel ranks."""
    assert [found for found, _ in strategy_mistakes(strategy)] == [place]


def test_mistakes_raise_together():
    """Two mistakes are one error."""
    with pytest.raises(SpecError, match=r"recipe: 2 mistakes\n  batch_size: .*\n  optimizer.beta1: "):
        require_recipe(Recipe(batch_size=0, optimizer=OptimizerSpec(beta1=2.0)))
    with pytest.raises(SpecError, match="strategy: shard_level: must be 0, 1, 2 or 3"):
        require_strategy(Strategy(shard_level=7))


@pytest.mark.parametrize(
    ("change", "path", "says"),
    [
        ({"recompute_layers": -1}, "recompute_layers", "at least 0"),
        ({"recompute_layers": 2}, "recompute_layers", '"full" only'),
        ({"offload_activations": 1.5}, "offload_activations", "share"),
        ({"lora_rank": -1}, "lora_rank", "at least 0"),
        ({"lora_targets": ("query",)}, "lora_targets", "set lora_rank, too"),
        ({"lora_rank": 8, "lora_targets": ("q_proj",)}, "lora_targets", "no linear layer"),
        ({"lora_rank": 8, "trainable": ("head",)}, "trainable", "only thing trained"),
        ({"trainable": ("haed",)}, "trainable", "no part"),
        ({"trainable": ("layers.x",)}, "trainable", "no part"),
        ({"trainable": ("layers.3-",)}, "trainable", "no part"),
        ({"trainable": ("layers.3-1",)}, "trainable", "ends before"),
        ({"trainable": ("layers.2-9",)}, "trainable", "beyond the 4 layers"),
    ],
)
def test_what_is_trained_and_saved_is_checked(change, path, says):
    spec = ModelSpec("tiny", 100, 64, 4, 32, AttentionSpec(4), MlpSpec(64))
    ((where, message),) = recipe_mistakes(replace(Recipe(), **change), spec)
    assert (where, says in message) == (path, True)


def test_parts_and_layers_by_number_can_be_trained():
    spec = ModelSpec("tiny", 100, 64, 4, 32, AttentionSpec(4), MlpSpec(64))
    assert recipe_mistakes(Recipe(trainable=("embedding", "layers.0", "layers.2-3", "head")), spec) == []
    assert recipe_mistakes(Recipe(lora_rank=8, recompute="full", recompute_layers=1, offload_activations=1.0)) == []


@pytest.mark.parametrize(("length", "place"), [(2, ["sequence_length"]), (3, [])])
def test_every_prediction_layer_has_a_token_to_predict(length, place):
    """Of 2 tokens the second prediction layer would have the one that is 3 on; of 3 tokens the last is."""
    spec = ModelSpec("further", 100, 64, 2, 32, AttentionSpec(4), MlpSpec(64), num_prediction_layers=2)
    assert [each for each, _ in recipe_mistakes(Recipe(sequence_length=length), spec)] == place
