"""The question: what is trained (`ModelSpec`), how (`Recipe`), spread how (`Strategy`). Pure data, no formulas."""

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
from torchledger.spec.recipe import OptimizerSpec, Recipe
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
]
