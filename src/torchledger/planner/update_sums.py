"""What an optimizer sends that looks at whole tensors, of which ranks hold shares (FSDP2, tensor parallel, or both)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from torchledger.formula import Parameter, parameters
from torchledger.formula.optimizer import BLOCK_8BIT, SMALLEST_8BIT, is_orthogonalized, trained
from torchledger.ledger import Line
from torchledger.planner.key_value_heads import cutters_of
from torchledger.planner.shard import sharded_spec
from torchledger.planner.stack import stack
from torchledger.planner.stage_ledger import collective
from torchledger.spec import ModelSpec, Recipe, Strategy

__all__ = ["update_sums"]

_FP32 = 4


@dataclass(frozen=True, slots=True)
class _Split:
    """Equal parameters, and how ranks split each.

    Attributes:
        whole: one of them, undivided.
        mine: as a tensor parallel rank has it, before any further split.
        sharers: ranks that split `mine` by rows.
        cutters: tensor parallel ranks that split the whole; 1 where each holds all.
        dim: along which they do.
    """

    whole: Parameter
    mine: Parameter
    sharers: int
    cutters: int
    dim: int

    def groups(self, dim: int) -> list[int]:
        """Sizes of the groups that split a dimension."""
        return [size for size, at in ((self.sharers, 0), (self.cutters, self.dim)) if size > 1 and at == dim]


def update_sums(spec: ModelSpec, recipe: Recipe, strategy: Strategy) -> Iterator[Line]:
    """The lines of one step of torchledger's own trainer, on the rank that holds most.

    - Muon gathers each matrix that it makes orthogonal, in FP32.
    - Adafactor adds up squares: of a matrix those of its rows, and those of its columns with the mean of the rows, each
      over the ranks that split the others, and in the same message those of all of it; and of every update.
    - AdamW in 8 bit gathers the scales of both averages' blocks, and agrees on the largest of each block.
    """
    kind = recipe.optimizer.kind
    sent = {"muon": _orthogonalized, "adafactor": _factored, "adamw-8bit": _in_blocks}.get(kind)
    if sent is None:
        return
    for each in _splits(spec, recipe, strategy):
        if each.sharers * each.cutters > 1:
            yield from sent(each)


def _splits(spec: ModelSpec, recipe: Recipe, strategy: Strategy) -> Iterator[_Split]:
    sharers = strategy.num_sharers if strategy.shard_level == 3 else 1
    mine = trained(parameters(sharded_spec(spec, strategy, stack(strategy.stack)), recipe))
    for whole, part in zip(trained(parameters(spec, recipe)), mine, strict=True):
        assert whole.name == part.name
        cut = [dim for dim, (of, have) in enumerate(zip(whole.shape, part.shape, strict=True)) if of != have]
        yield _Split(whole, part, sharers, cutters_of(whole.name, spec, strategy) if cut else 1, cut[0] if cut else 0)


def _orthogonalized(each: _Split) -> Iterator[Line]:
    """Where both split rows, first those of a tensor parallel rank, which are filled up; else first the columns."""
    if not is_orthogonalized(each.whole):
        return
    rows, columns = int(each.mine.shape[0]), int(each.whole.shape[1])
    filled = _FP32 * _filled_up(rows, each.sharers) * columns
    yield from _line("all_gather", each, filled, each.sharers)
    cut = filled // each.sharers if each.dim == 1 else _FP32 * int(each.whole.num_elements)
    yield from _line("all_gather", each, cut, each.cutters)


def _factored(each: _Split) -> Iterator[Line]:
    if len(each.whole.shape) > 1:
        rows, columns = (int(size) for size in each.mine.shape)
        rows = -(-rows // each.sharers)
        for size in each.groups(1):
            yield from _line("all_reduce", each, _FP32 * (rows + 1), size)
        for size in each.groups(0):
            yield from _line("all_reduce", each, _FP32 * (columns + 2), size)
    else:
        for size in each.groups(0):
            yield from _line("all_reduce", each, _FP32, size)
    for size in (each.sharers, each.cutters):
        yield from _line("all_reduce", each, _FP32, size)


def _in_blocks(each: _Split) -> Iterator[Line]:
    """Scales are cut among those that share rows, and each cut again among tensor parallel ranks."""
    elements = int(each.whole.num_elements)
    if elements < SMALLEST_8BIT:
        return
    blocks = math.ceil(elements / BLOCK_8BIT)
    cut = math.ceil(blocks / each.sharers)
    yield from _line("all_gather", each, _FP32 * _filled_up(cut, each.cutters), each.cutters, 2)
    yield from _line("all_gather", each, _FP32 * _filled_up(blocks, each.sharers), each.sharers, 2)
    for size in (each.sharers, each.cutters):
        yield from _line("all_reduce", each, 2 * _FP32 * blocks, size)


def _filled_up(rows: int, ranks: int) -> int:
    """The next multiple of the ranks."""
    return rows + -rows % ranks


def _line(op: str, each: _Split, num_bytes: int, ranks: int, times: int = 1) -> Iterator[Line]:
    if ranks > 1:
        (piece,) = collective(op, num_bytes, ranks, _FP32)
        yield piece.line(each.mine.name, phase="communication", times=times * int(each.mine.times))
