"""`update_s`: seconds that the optimizer takes for each parameter that it moves, on the chip or on its host."""

from __future__ import annotations

from torchledger.formula import parameters
from torchledger.formula.optimizer import optimizer_lines, trained
from torchledger.ledger import Line
from torchledger.planner.efficiency import Chipset, line_s
from torchledger.planner.host import Host
from torchledger.spec import ModelSpec, Recipe

#: What is done to gradients before they leave the chip.
_ON_CHIP = frozenset({"unscale", "update_scale", "clip_grad_norm"})


def update_s(spec: ModelSpec, recipe: Recipe, precision: str, chips: Chipset, host: Host | None = None) -> float:
    """Seconds of clipping and step, over the parameters of the whole model that are trained; 0 where none are.

    A rank of any layout is taken to move a fair share of every kind of parameter, so that a step takes it this often.

    Args:
        spec: the model, whose matrices Muon orthogonalises whole.
        recipe: the optimizer, what is trained.
        precision: what the stack means by the recipe's.
        chips: rates of the chip.
        host: where the step runs, clipping apart; nothing: on the chip.
    """
    moved = trained(parameters(spec, recipe))
    elements = sum(each.total for each in moved)
    if not elements:
        return 0.0
    lines = optimizer_lines(moved, recipe.optimizer, precision)
    return sum(_seconds(line, chips, host) * float(line.times) for line in lines) / float(elements)


def _seconds(line: Line, chips: Chipset, host: Host | None) -> float:
    """Seconds of one time; the host's are those of its memory."""
    if host is None or line.op in _ON_CHIP:
        return line_s(line, chips) or 0.0
    return float(line.work.bytes_moved or 0.0) / host.memory_bytes_per_s
