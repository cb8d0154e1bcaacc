"""The question: what is trained (`ModelSpec`), how (`Recipe`), spread how (`Strategy`). Pure data, no formulas.

model.py, recipe.py, strategy.py   the data
check.py, check_recipe.py          every reason why it cannot be
read.py                            load: preset name, TOML file, config.json, folder
file.py                            our own model files
presets/                           published models by name
huggingface/                       config.json as a ModelSpec
"""

from torchledger.spec import check, presets
from torchledger.spec.check_recipe import recipe_mistakes, require_recipe, require_strategy, strategy_mistakes
from torchledger.spec.model import (
    AttentionSpec,
    LayerGroup,
    MlpSpec,
    ModelSpec,
    MoeSpec,
    NormSpec,
    PositionSpec,
    SpecError,
)
from torchledger.spec.read import file_in, load
from torchledger.spec.recipe import OptimizerSpec, Recipe, default_sequence_length
from torchledger.spec.strategy import Strategy

__all__ = [
    "AttentionSpec",
    "LayerGroup",
    "MlpSpec",
    "ModelSpec",
    "MoeSpec",
    "NormSpec",
    "OptimizerSpec",
    "PositionSpec",
    "Recipe",
    "SpecError",
    "Strategy",
    "check",
    "default_sequence_length",
    "file_in",
    "load",
    "presets",
    "recipe_mistakes",
    "require_recipe",
    "require_strategy",
    "strategy_mistakes",
]
