"""`Bounds`: what no layout of a subtree can be below, without costing a single block of it.

The seconds of a block's phase are at least those of its contractions at the chip's full rate and of its other kernels
at its full bandwidth, and these floors are sums of products of sizes: n · (S + I / t) / c for a micro-batch of n
sequences over t tensor and c context parallel ranks, where I is what tensor parallelism divides and S what it leaves
whole. S and I come from the blocks of a few reference layouts. Exchanges are priced as they are, since that costs
nothing, and kernels are started as often as there are any. Bytes that a block keeps and parameters have that form too.

Nothing here says how fast a kernel is, only that none is faster than its roof; so a change of `line_s` keeps the bounds
bounds as long as `floor_s` stays below it. `tests/planner/test_bound.py` holds both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from torchledger.ledger import CONTRACTIONS, Line
from torchledger.planner.assembly import Runs
from torchledger.planner.block import Piece, pieces
from torchledger.planner.bound_product import Product, Seen, product_of
from torchledger.planner.bound_reference import in_whole_pieces, in_whole_rows, reference
from torchledger.planner.constants import Constants
from torchledger.planner.efficiency import Chipset
from torchledger.planner.estimator import Estimator
from torchledger.planner.stack import stack
from torchledger.planner.stage import Block, BlockKind
from torchledger.spec import ModelSpec, Strategy

#: Operations that make a mask of documents; of pairs of tokens a context parallel rank has a share of a share.
_MASKS = frozenset({"compare", "masked_fill"})
_PHASES = ("forward", "recompute", "backward", "weight")


class Share(NamedTuple):
    """An amount over t tensor parallel ranks: `whole + divided / t`."""

    whole: float
    divided: float

    def at(self, ranks: int) -> float:
        """The amount of one rank."""
        return max(0.0, self.whole + self.divided / ranks)


class Floor(NamedTuple):
    """The least of computing of one kind.

    Attributes:
        products: matrix products of known sizes.
        device_s: of one sequence, what the other lines take, by whether the tokens are split over context parallel
            ranks: what they split evenly.
    """

    products: tuple[Product, ...]
    device_s: tuple[Share, Share]

    def busy_s(self, sequences: float, ranks: int, chips: Chipset, *, is_cut: bool) -> float:
        """Seconds of the device for so many sequences of a context parallel rank, kernels starting in no time."""
        rest = self.device_s[is_cut].at(ranks) * sequences
        return rest + sum(each.seconds(sequences, ranks, chips) for each in self.products)

    def least_s(self, ranks: int, *, is_cut: bool) -> float:
        """Seconds of a sequence, however many others it runs with: at the full rate."""
        return self.device_s[is_cut].at(ranks) + sum(each.least_s(ranks) for each in self.products)


class PhaseFloor(NamedTuple):
    """The least of one phase of a block.

    Attributes:
        attention: scores and what is made of them.
        matmul: other contractions.
        device_s: of one sequence, what all else takes; see `Floor`.
        constant_s: what moves the same bytes whatever the tokens are: casts of weights.
        kernels_s: starts of its kernels, whatever their size.
        host_s: what the host needs to issue them.
    """

    attention: Floor
    matmul: Floor
    device_s: tuple[Share, Share]
    constant_s: Share
    kernels_s: float
    host_s: float

    @property
    def products(self) -> tuple[Product, ...]:
        """All matrix products of known sizes."""
        return self.attention.products + self.matmul.products

    def rest_s(self, sequences: float, ranks: int, *, is_cut: bool) -> float:
        """Seconds of what is no contraction, for so many sequences of a context parallel rank."""
        return self.device_s[is_cut].at(ranks) * sequences + self.constant_s.at(ranks)

    def least_s(self, ranks: int, *, is_cut: bool) -> float:
        """Seconds of a sequence, however many others it runs with: at the full rate, and kernels start in no time."""
        contractions = self.attention.least_s(ranks, is_cut=is_cut) + self.matmul.least_s(ranks, is_cut=is_cut)
        return self.device_s[is_cut].at(ranks) + contractions


class PieceFloor(NamedTuple):
    """The least of one block.

    Attributes:
        kind: of the block.
        runs: where its layers are.
        num_layers: how many such blocks the model has.
        phases: forward, recompute, backward, weight.
        kept_bytes: of one sequence.
        beside_bytes: of one sequence, what its backward pass holds beside: temporaries and what is made again.
        less_bytes: how much less that is whatever the number of sequences (a mask that all share): 0 or below.
        parameters, trainable: elements, and those with gradients and state.
        expert_parameters, expert_trainable: the same of all its routed experts.
    """

    kind: BlockKind
    runs: Runs
    num_layers: int
    phases: tuple[PhaseFloor, ...]
    kept_bytes: Share
    beside_bytes: Share
    less_bytes: float
    parameters: Share
    trainable: Share
    expert_parameters: float
    expert_trainable: float


def floor_s(line: Line, chips: Chipset, *, splits_tokens: bool = False) -> float:
    """The least that a line can take whatever its shape is, in seconds that add up when the line is cut in parts.

    Without the start of its kernel. What a context parallel rank reads and writes of the scores and of masks over pairs
    of tokens depends on how they are split, so it counts nothing there.
    """
    work = line.work
    moved = work.bytes_moved
    if line.kind == "unknown" or moved is None:
        return 0.0
    if line.kind not in CONTRACTIONS:
        pairs = ".core" in line.module or line.op in _MASKS
        return 0.0 if splits_tokens and pairs else float(moved / chips.bytes_per_s)
    if "keys" in dict(line.shape) and work.flops_exact is not None:
        return float(work.flops_exact / chips.attention_flops_per_s[line.phase == "backward"])
    rate = chips.rate(line.number_format)
    return 0.0 if rate is None or work.flops_executed is None else float(work.flops_executed / rate)


def smallest_split(spec: ModelSpec) -> int:
    """The least number of tensor parallel ranks above one that divides everything evenly; 1 if there is none."""
    sizes = [spec.attention.num_heads, spec.num_key_value_heads, spec.mlp.intermediate_size]
    if spec.moe is not None:
        sizes += [spec.moe.intermediate_size, spec.moe.shared_intermediate_size]
    for ranks in range(2, min(each for each in sizes if each) + 1):
        if all(size % ranks == 0 for size in sizes):
            return ranks
    return 1


def floors(
    estimator: Estimator, base: Strategy, *, sequence_parallel: bool, expert_tensor_parallel: int
) -> tuple[PieceFloor, ...]:
    """The floors of every block, from its lines on one and a few tensor parallel ranks, for one and two sequences.

    What is not there when every rank has one head (the copies of key-value heads that several heads share) is left out,
    and every expert is on a rank of its own; but for what stands beside the rows of one expert, fewest where a rank
    has all experts.
    """
    split, heads = smallest_split(estimator.spec), estimator.spec.attention.num_heads
    experts = 1 if estimator.spec.moe is None else estimator.spec.moe.num_experts
    plain = replace(base, expert_parallel=experts, expert_tensor_parallel=expert_tensor_parallel)
    layouts = (
        *(reference(plain, 1, size, sequence_parallel=False) for size in (1, 2)),
        *(reference(plain, split, size, sequence_parallel=sequence_parallel) for size in (1, 2)),
        reference(replace(plain, context_parallel=2), 1, 1, sequence_parallel=False),
        reference(plain, heads, 1, sequence_parallel=sequence_parallel),
    )
    rules, spec = stack(base.stack), in_whole_rows(estimator.spec, estimator.recipe)
    for_seconds, for_bytes = in_whole_pieces(estimator.recipe)
    seen = [pieces(spec, for_seconds, layout, rules) for layout in layouts]
    held = seen if for_bytes == for_seconds else [pieces(spec, for_bytes, layout, rules) for layout in layouts]
    beside = held[:4]
    if spec.moe is not None:
        beside = [pieces(spec, for_bytes, replace(layout, expert_parallel=1), rules) for layout in layouts[:4]]
    factor = 0.0 if rules.compiled else rules.host_factor
    asked = _Asked(estimator.chips(base), estimator.constants, factor, split, heads, experts)
    return tuple(
        _piece_floor(asked, own, _Holding([each.block for each in kept], [each.block for each in of_one]))
        for own, kept, of_one in zip(*(zip(*each, strict=True) for each in (seen, held, beside)), strict=True)
    )


class _Asked(NamedTuple):
    """What floors are asked for.

    Attributes:
        chips, constants: rates and starts of kernels.
        host_factor: of the stack; 0 where nothing is issued one by one.
        split, heads, num_experts: ranks of the reference layouts.
    """

    chips: Chipset
    constants: Constants
    host_factor: float
    split: int
    heads: int
    num_experts: int


class _Always(NamedTuple):
    """What of a block is there, as often, however many heads a rank has."""

    lines: frozenset[tuple[str, str, str, str | None]]
    activations: frozenset[str]
    is_all: bool

    @classmethod
    def of(cls, block: Block, barest: Block) -> _Always:
        places = Counter(map(_place, block.lines))
        left = Counter(map(_place, barest.lines))
        lines = frozenset(place for place, count in places.items() if left[place] >= count)
        names = frozenset(each.name for each in barest.activations)
        return cls(lines, names, len(lines) == len(places) and {each.name for each in block.activations} <= names)


def _place(line: Line) -> tuple[str, str, str, str | None]:
    return line.module, line.op, line.phase, line.gradient_of


class _Holding(NamedTuple):
    """A block's reference layouts for bytes: those as for seconds, and the first four where a rank has all experts."""

    apart: Sequence[Block]
    together: Sequence[Block]


def _piece_floor(asked: _Asked, seen: tuple[Piece, ...], held: _Holding) -> PieceFloor:
    """From (1 rank, 1 and 2 sequences), (`split` ranks, the same), 1 of 2 context ranks, and as many ranks as heads."""
    split, num_experts = asked.split, asked.num_experts
    blocks = [each.block for each in seen]
    there, holding = _Always.of(blocks[0], blocks[-1]), _Always.of(held.apart[0], held.apart[-1])
    kept = [
        sum(each.total_bytes for each in block.activations if each.name in holding.activations)
        for block in held.apart[:4]
    ]
    beside = [
        block.recomputed_bytes + temporary if holding.is_all else 0.0
        for block, temporary in zip(held.apart[:4], _temporary_bytes(held.together), strict=True)
    ]
    return PieceFloor(
        kind=blocks[0].kind,
        runs=seen[0].runs,
        num_layers=seen[0].num_layers,
        phases=tuple(_phase_floor(asked, phase, blocks, there) for phase in _PHASES),
        kept_bytes=_fit(kept, split),
        beside_bytes=_fit(beside, split),
        less_bytes=min(0.0, 2 * beside[0] - beside[1], 2 * beside[2] - beside[3]),
        parameters=_fit_constant([block.num_parameters for block in blocks[:4]], split),
        trainable=_fit_constant([block.num_trainable for block in blocks[:4]], split),
        expert_parameters=blocks[0].num_expert_parameters * num_experts,
        expert_trainable=blocks[0].num_trainable_expert * num_experts,
    )


def _phase_floor(asked: _Asked, phase: str, blocks: Sequence[Block], always: _Always) -> PhaseFloor:
    """From the blocks of the reference layouts, the one on context parallel ranks and the barest last."""
    constants, chips, split = asked.constants, asked.chips, asked.split
    lines = [
        [each for each in block.lines if _phase(each) == phase and _place(each) in always.lines] for block in blocks
    ]
    products: dict[str, list[Product]] = {"attention": [], "matmul": []}
    rest, constant = lines[:4], [0.0, 0.0]
    if len(set(map(len, lines))) == 1:
        rest = [[], [], [], []]
        for one, two, shared, shared_two, fewer, bare in zip(*lines, strict=True):
            found = product_of(Seen((one, two, shared, shared_two), bare, split, asked.heads), chips)
            if found is not None:
                products[_cover(one)].append(found)
            elif one.kind not in CONTRACTIONS and _is_constant(one, two) and _is_constant(one, fewer):
                constant[0] += floor_s(one, chips) * one.times
                constant[1] += floor_s(shared, chips) * shared.times
            else:
                for kept, line in zip(rest, (one, two, shared, shared_two), strict=True):
                    kept.append(line)
    shares = {
        cover: _shares([[line for line in each if _cover(line) == cover] for each in rest], chips, split)
        for cover in ("attention", "matmul", "")
    }
    attention, matmul = (Floor(tuple(products[cover]), shares[cover]) for cover in ("attention", "matmul"))
    started = _starts(lines[2], lines[3])
    host = started * constants.host_s * asked.host_factor
    if host and phase == "recompute":
        host += constants.checkpoint_host_s
    bytes_s = _share(constant[0], constant[1], split)
    return PhaseFloor(attention, matmul, shares[""], bytes_s, started * constants.kernel_s, host)


def _is_constant(line: Line, other: Line) -> bool:
    """Whether the line moves in both layouts as many bytes, as often."""
    return (line.work.bytes_moved, line.times) == (other.work.bytes_moved, other.times)


def _starts(lines: Sequence[Line], of_two: Sequence[Line]) -> float:
    """Kernels that start whatever the tokens are: of what two sequences run more often there may be one."""
    often = {_place(line): line.times for line in of_two}
    return sum(
        float(line.times) if often.get(_place(line)) == line.times else min(1.0, line.times)
        for line in lines
        if ".experts" not in line.module and line.work.bytes_moved
    )


def _cover(line: Line) -> str:
    """What of computing exchanges run beside it is: that of context parallelism, of tensor parallelism, of none."""
    return "attention" if line.kind == "attention" else "matmul" if line.kind in CONTRACTIONS else ""


def _shares(lines: Sequence[Sequence[Line]], chips: Chipset, split: int) -> tuple[Share, Share]:
    """Floors of a sequence of the lines of the reference layouts, tokens whole and split."""
    whole, cut = (
        _fit([sum(floor_s(line, chips, splits_tokens=is_cut) * line.times for line in each) for each in lines], split)
        for is_cut in (False, True)
    )
    return whole, cut


def _temporary_bytes(blocks: Sequence[Block]) -> list[float]:
    """Of (1 rank, 1 and 2 sequences), (`split` ranks, the same).

    Experts that receive one token more than the rest are a group of their own, and temporaries of a group stand
    together. Groups change with the tokens; the larger one has half of the experts or more.
    """
    most: list[float] = [max(block.forward_temporary_bytes, block.backward_temporary_bytes) for block in blocks]
    if not any(block.num_expert_parameters for block in blocks):
        return most
    alone, shared = (min(most[at], most[at + 1] / 2) / 2 for at in (0, 2))
    return [alone, 2 * alone, shared, 2 * shared]


def _phase(line: Line) -> str:
    return "weight" if line.phase == "backward" and line.gradient_of == "weight" else line.phase


def _fit(values: Iterable[float], split: int) -> Share:
    """What grows with the sequences, as a share: from 1 and 2 of them on 1 rank and on `split`.

    >>> _fit([7.0, 12.0, 5.0, 8.0], 2)  # 5 a sequence on one rank, 3 on two: 1 whole, 4 divided
    Share(whole=1.0, divided=4.0)
    """
    one, two, one_of_many, two_of_many = values
    return _share(two - one, two_of_many - one_of_many, split)


def _fit_constant(values: Iterable[float], split: int) -> Share:
    one, _, one_of_many, _ = values
    return _share(one, one_of_many, split)


def _share(alone: float, of_many: float, split: int) -> Share:
    """The line through the amounts of 1 rank and of each of `split`; what falls faster has less than nothing whole."""
    if split == 1:
        return Share(0.0, max(0.0, alone))
    divided = (alone - of_many) * split / (split - 1)
    return Share(alone - divided, divided)
