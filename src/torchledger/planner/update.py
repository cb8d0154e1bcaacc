"""`update_s`: seconds that the optimizer takes for each parameter that it moves."""

from __future__ import annotations

from torchledger.formula import parameters
from torchledger.formula.optimizer import optimizer_lines, trained
from torchledger.planner.efficiency import Chipset, line_s
from torchledger.spec import ModelSpec, Recipe


def update_s(spec: ModelSpec, recipe: Recipe, precision: str, chips: Chipset) -> float:
    """Seconds of clipping and step, over the parameters of the whole model that are trained; 0 where none are.

    A rank of any layout is taken to move a fair share of every kind of parameter, so that a step takes it this often.

    Args:
        spec: the model, whose matrices Muon orthogonalises whole.
        recipe: the optimizer, what is trained.
        precision: what the stack means by the recipe's.
        chips: rates of the chip.
    """
    moved = trained(parameters(spec, recipe))
    elements = sum(each.total for each in moved)
    if not elements:
        return 0.0
    lines = optimizer_lines(moved, recipe.optimizer, precision)
    return sum((line_s(line, chips) or 0.0) * float(line.times) for line in lines) / float(elements)
