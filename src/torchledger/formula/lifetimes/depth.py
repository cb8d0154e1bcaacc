"""The depth of a model, of whose many equal layers four stand for all.

Each of a run of equal layers keeps as much as the one before it, and leaves as many gradients: what is alive at the
same place of two neighbours differs by the same bytes all along, so that the fullest of them is the first or the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchledger.formula.lifetimes.autograd import Gradients, begun, ended, is_alone
from torchledger.formula.lifetimes.memory import Block
from torchledger.formula.lifetimes.modules import Weights
from torchledger.formula.lifetimes.tensors import SIZES, Tensor
from torchledger.formula.training import Training, layer_runs
from torchledger.spec import ModelSpec, Recipe

#: Layers of a run that are walked: the first ones, until they keep alike, and the last.
_FIRST, _LAST = 3, 1


@dataclass(frozen=True, slots=True)
class Depth:
    """A layer that is walked.

    Attributes:
        index: its number.
        training: what of it is trained.
        again: whether it runs again in the backward pass.
        skipped: how many equal ones after it are not walked.
    """

    index: int
    training: Training
    again: bool
    skipped: int = 0


def depths(spec: ModelSpec, recipe: Recipe) -> Iterator[Depth]:
    """The layers that are walked, in order. With a load-balancing loss all are: each has a number in it."""
    found = []
    for run, training in layer_runs(spec, recipe):
        for index in range(run.first, run.first + run.count):
            again = recipe.recompute == "full" and recipe.recomputes_layer(index)
            layer = spec.layer(index)
            found.append((Depth(index, training, again), (layer.window, layer.is_moe, training, again)))
    start = 0
    while start < len(found):
        end = start
        while end < len(found) and found[end][1] == found[start][1]:
            end += 1
        skipped = end - start - _FIRST - _LAST
        if skipped < 2 or recipe.load_balance:
            yield from (each for each, _ in found[start:end])
        else:
            yield from (each for each, _ in found[start : start + _FIRST - 1])
            third = found[start + _FIRST - 1][0]
            yield Depth(third.index, third.training, third.again, skipped)
            yield found[end - 1][0]
        start = end


def skip(weights: Weights, h: Tensor, depth: Depth, kept_bytes: int, known: Sequence[int]) -> Tensor:
    """The stream behind layers that are not walked, and what they leave: bytes kept, then gradients; parameters.

    Args:
        weights: of the model.
        h: what the layer before them made.
        depth: that layer.
        kept_bytes: by how much more was alive after it than before it.
        known: of the casts under autocast, those that were there before it.
    """
    memory, count = weights.memory, depth.skipped
    own = weights.of_layer(depth.index)
    cast_bytes = 0
    if memory.casts is not None:
        cast_bytes = sum(
            each.block.num_bytes for key, each in memory.casts.items() if key not in known and is_alone(each)
        )
        memory.casts[-1 - depth.index] = Tensor(Block(memory, count * cast_bytes, "temporaries"), (), (), "uint8")
    held = [Block(memory, count * (kept_bytes - cast_bytes), "activations")]
    is_first = not weights.repeat(own, depth.index, count)
    gradient_bytes = sum(
        each.tensor.num_elements * SIZES[each.tensor.number_format] for each in own if each.tensor.leaf is not None
    )
    node = begun((h,))
    y = h.detached()

    def back(_: list[Tensor | None], g: Gradients, __: list[Tensor]) -> Gradients:
        held.clear()
        if is_first:
            weights.left.append(Block(memory, count * gradient_bytes, "gradients"))
        return [g[0]]

    ended(node, back, y)
    return y
