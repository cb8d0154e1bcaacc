"""`LeastSharing`: the least that gathering weights and reducing gradients layer by layer adds to every micro-batch.

`with_copies`: what copies of kept activations to the host and back add to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torchledger.planner.block import Piece, meant_precision
from torchledger.planner.bound import PieceFloor
from torchledger.planner.constants import Constants
from torchledger.planner.data_parallel import data_rules, exposed, gather_s, reduce_s
from torchledger.planner.estimator import Estimator
from torchledger.planner.host import HostRules
from torchledger.planner.search_grid import Axes, ShardKind, divisors
from torchledger.planner.stack import stack
from torchledger.planner.stage import Block
from torchledger.spec import Strategy


class LeastSharing:
    """Seconds of sharing, by block.

    Args:
        estimator: of the question.
        base: the stack.
        axes: whether groups may be smaller than all data parallel ranks.
        floors: of the blocks; parameters are read from them.
    """

    __slots__ = ("_estimator", "_floors", "_groups", "_known", "_stack")

    def __init__(self, estimator: Estimator, base: Strategy, axes: Axes, floors: Sequence[PieceFloor]) -> None:
        self._estimator = estimator
        self._stack = stack(base.stack)
        self._floors = floors
        self._groups = axes.shard_groups
        self._known: dict[tuple[object, ...], tuple[tuple[float, float], ...] | None] = {}

    def of(self, strategy: Strategy, kind: ShardKind) -> tuple[tuple[float, float], ...] | None:
        """By block, seconds beside its forward and beside its backward pass; nothing where none are every time."""
        key = (
            kind,
            strategy.tensor_parallel,
            strategy.context_parallel,
            strategy.data_parallel,
            strategy.pipeline_parallel > 1,
            strategy.expert_parallel,
            strategy.expert_tensor_parallel,
        )
        if key not in self._known:
            self._known[key] = self._found(strategy, kind)
        return self._known[key]

    def _found(self, strategy: Strategy, kind: ShardKind) -> tuple[tuple[float, float], ...] | None:
        level, reshard = kind
        ranks = strategy.data_parallel
        smaller = [each for each in divisors(ranks) if 1 < each < ranks] if self._groups else []
        least: list[tuple[float, float]] | None = None
        for group in (0, *smaller):
            shared = replace(strategy, shard_level=level, reshard=reshard, shard_group=group)
            found = self._of_group(shared)
            if found is None:
                return None
            pairs = zip(least or found, found, strict=True)
            least = [(min(f, g), min(b, c)) for (f, b), (g, c) in pairs]
        return None if least is None else tuple(least)

    def _of_group(self, strategy: Strategy) -> list[tuple[float, float]] | None:
        estimator = self._estimator
        rules = data_rules(estimator.recipe, strategy, self._stack, meant_precision(estimator.recipe, self._stack))
        if not rules.reduces_each:
            return None
        found = []
        for floor in self._floors:
            block = _block(floor, strategy)
            gather = gather_s(block, rules, estimator.fabric) if rules.each_layer else 0.0
            again = gather if rules.reshard else 0.0
            found.append((gather, again + reduce_s(block, rules, estimator.fabric)))
        return found


def with_copies(
    pieces: Sequence[Piece], blocks: Sequence[tuple[float, float, float]], host: HostRules, constants: Constants
) -> Sequence[tuple[float, float, float]]:
    """Seconds of blocks (forward, backward, weight gradient) with what shows of copies beside them."""
    if not host.kept_share:
        return blocks
    found = []
    for piece, (forward, backward, weight) in zip(pieces, blocks, strict=True):
        away = 0.0 if piece.block.kind == "head" else host.kept_s * piece.block.kept_bytes
        out = exposed(away, forward, constants.drag, overlaps=True)
        back = exposed(away, backward + weight, constants.drag, overlaps=True)
        found.append((forward + out, backward + back, weight))
    return found


def _block(floor: PieceFloor, strategy: Strategy) -> Block:
    ranks = strategy.tensor_parallel
    own = 1 / (strategy.expert_parallel * (strategy.expert_tensor_parallel or ranks))
    return Block(
        name=floor.kind,
        kind="layer",
        lines=(),
        num_parameters=int(floor.parameters.at(ranks)),
        num_expert_parameters=int(floor.expert_parameters * own),
        num_trainable=int(floor.trainable.at(ranks)),
        num_trainable_expert=int(floor.expert_trainable * own),
        num_tensors=0,
        largest_tensor=0,
        activations=(),
        kept_bytes=0,
        recomputed_bytes=0,
        forward_temporary_bytes=0,
        backward_temporary_bytes=0,
        output_bytes=0,
    )
