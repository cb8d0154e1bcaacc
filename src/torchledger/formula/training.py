"""Which parts of a model a recipe trains, and from which layer on gradients flow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torchledger.spec import LayerGroup, ModelSpec, Recipe


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained of a run of equal layers, and what reaches them.

    Attributes:
        trains: whether their own parameters are trained.
        adapted: whether there are adapters in them, which are.
        reached: whether the gradient of their input is needed, for something is trained before them.
    """

    trains: bool = True
    adapted: bool = False
    reached: bool = True


#: All of it trained, as it mostly is.
WHOLE = Training()


def trains(recipe: Recipe, part: str) -> bool:
    """Whether the parameters of a part are trained: `embedding`, `head` or `prediction`.

    >>> trains(Recipe(), "head"), trains(Recipe(trainable=("head",)), "embedding"), trains(Recipe(lora_rank=8), "head")
    (True, False, False)
    """
    return not recipe.lora_rank and (not recipe.trainable or part in recipe.trainable)


def adapts(name: str, targets: tuple[str, ...]) -> bool:
    """Whether a linear layer has an adapter: it is named, or it is one of the matrices that are multiplied as one.

    >>> adapts("up", ()), adapts("up", ("query",)), adapts("query_key_value", ("query", "value"))
    (True, False, True)
    """
    last = name.rpartition(".")[2]
    return not targets or not set(_JOINT.get(last, (last,))).isdisjoint(targets)


#: Matrices that some kernel sets keep and multiply as one, which then has one adapter.
_JOINT = {"query_key_value": ("query", "key", "value"), "gate_up": ("gate", "up")}


def layer_runs(spec: ModelSpec, recipe: Recipe) -> Iterator[tuple[LayerGroup, Training]]:
    """The depth as runs of layers that are equal and equally trained, in order.

    >>> from torchledger.spec import AttentionSpec, MlpSpec
    >>> tiny = ModelSpec("tiny", 100, 64, 4, 32, AttentionSpec(4), MlpSpec(64))
    >>> runs = layer_runs(tiny, Recipe(trainable=("layers.2-3",)))
    >>> [(run.first, run.count, training.trains) for run, training in runs]
    [(0, 2, False), (2, 1, True), (3, 1, True)]
    """
    adapted = recipe.lora_rank != 0
    if not adapted and not recipe.trainable:
        yield from ((group, WHOLE) for group in spec.layer_groups)
        return
    ranges = _ranges(spec, recipe)
    reached = trains(recipe, "embedding")
    begins = 0 if adapted else min((first for first, _ in ranges), default=None)
    cuts = {cut for first, last in ranges for cut in (first, last + 1)}
    if begins is not None and not reached:
        cuts |= {begins, begins + 1}
    for group in spec.layer_groups:
        for run in _cut(group, sorted(cuts)):
            own = any(first <= run.first <= last for first, last in ranges)
            yield run, Training(own, adapted, reached)
            reached = reached or own or adapted


def _cut(group: LayerGroup, cuts: list[int]) -> Iterator[LayerGroup]:
    first, count = group.first, group.count
    for cut in cuts:
        inside = cut - first
        if 0 < inside < count:
            yield LayerGroup(group.window, group.is_moe, first, inside)
            first, count = cut, count - inside
    yield LayerGroup(group.window, group.is_moe, first, count)


def _ranges(spec: ModelSpec, recipe: Recipe) -> list[tuple[int, int]]:
    """First and last index of every run of layers that is named."""
    found: list[tuple[int, int]] = []
    for name in recipe.trainable:
        if name == "layers":
            found.append((0, spec.num_layers - 1))
        elif name.startswith("layers."):
            first, _, last = name.removeprefix("layers.").partition("-")
            found.append((int(first), int(last or first)))
    return found
