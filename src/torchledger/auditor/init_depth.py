"""Depth: the stacks of a model, and how signals and gradients grow from one member to the next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from torchledger.auditor.init_signals import Call, Signals
from torchledger.auditor.init_size import Size
from torchledger.auditor.init_uses import Use

_SHARE = 0.1  # of the parameters: less is no stack that a model is made of


@dataclass(frozen=True, slots=True)
class Level:
    """One member of a stack; the first level is what the stack reads.

    Attributes:
        place: its path.
        signal: what comes out.
        gradient: the loss's gradient by that; nothing where unknown.
        num_parameters: of the member.
    """

    place: str
    signal: Size
    gradient: Size | None
    num_parameters: int = 0


@dataclass(frozen=True, slots=True)
class Stack:
    """Members of one kind that run one after the other.

    Attributes:
        name: path of what holds them.
        kind: the members' class.
        levels: what they read, then each in turn.
        is_chain: whether they are plain layers, of which each multiplies what the one before it gave.
    """

    name: str
    kind: str
    levels: tuple[Level, ...]
    is_chain: bool = False

    @property
    def trunk(self) -> tuple[Level, ...]:
        """The levels between which growth is told: from what the first of the equally large members reads to the last.

        A head of ten outputs, or a first layer of three inputs, says little of what one more layer would do.
        """
        sizes = [level.num_parameters for level in self.levels[1:]]
        equal = max(set(sizes), key=lambda size: (sizes.count(size), size))
        if sizes.count(equal) < 2:
            return self.levels
        first, last = sizes.index(equal), len(sizes) - 1 - sizes[::-1].index(equal)
        return self.levels[first : last + 2]

    @property
    def num_layers(self) -> int:
        """Members of the trunk, what they read not among them."""
        return len(self.trunk) - 1

    @property
    def forward(self) -> float | None:
        """How many times larger a signal becomes, from what the trunk reads to what it gives."""
        return _ratio(self.trunk[-1].signal, self.trunk[0].signal)

    @property
    def backward(self) -> float | None:
        """How many times larger a gradient becomes on its way back, from the last member's output to the first's."""
        return _ratio(self.trunk[1].gradient, self.trunk[-1].gradient)

    @property
    def forward_steps(self) -> tuple[float, ...]:
        """How many times larger each layer of the trunk makes a signal; known ones."""
        return self._steps(0, 1)

    @property
    def backward_steps(self) -> tuple[float, ...]:
        """How many times larger each layer of the trunk makes a gradient on its way back; known ones."""
        return self._steps(1, 2)

    def _steps(self, which: int, first: int) -> tuple[float, ...]:
        found = (growth(self.trunk, place)[which] for place in range(first, len(self.trunk)))
        return tuple(each for each in found if each)


def rate(steps: Sequence[float]) -> float | None:
    """Growth by one layer: the median of all, of logarithms, so that one layer unlike the others does not decide it.

    >>> rate((80.0, 2.0, 2.0))
    2.0
    """
    return round(math.exp(median(map(math.log, steps))), 12) if steps else None


def stacks(signals: Signals, num_parameters: int) -> tuple[Stack, ...]:
    """The stacks that a model is made of, the largest first; none lies within another.

    Modules of one class under one parent are a stack where they are two calls or more and hold a tenth of the
    parameters. A model without any is taken as the matmuls and convolutions that it runs, one after the other.
    """
    groups: dict[tuple[str, str], list[Call]] = {}
    for call in signals.calls:
        if call.place:
            groups.setdefault((call.place.rpartition(".")[0], call.kind), []).append(call)
    weighed = sorted(
        ((sum({c.place: c.num_parameters for c in calls}.values()), key) for key, calls in groups.items()),
        key=lambda pair: (-pair[0], pair[1][0].count(".")),
    )
    large = [(key, groups[key]) for held, key in weighed if held >= _SHARE * num_parameters]
    for must_be_equal in (True, False):
        if chosen := _apart(large, must_be_equal=must_be_equal):
            return chosen
    single = _of_uses(signals.uses)
    return (single,) if single is not None else ()


def _apart(groups: Iterable[tuple[tuple[str, str], Sequence[Call]]], *, must_be_equal: bool) -> tuple[Stack, ...]:
    """Groups of which none lies within another, as stacks.

    Args:
        groups: calls of a class under a parent, the largest first.
        must_be_equal: whether only those with two members of one size are taken: a hidden layer and a head are none.
    """
    chosen: list[Stack] = []
    taken: list[str] = []
    for (parent, kind), group in groups:
        calls = [call for call in group if call.writes is not None]
        inside = any(each.place == t or each.place.startswith(f"{t}.") for each in calls for t in taken)
        around = any(t.startswith(f"{each.place}.") for each in calls for t in taken)
        no_layer = any(word in kind.lower() for word in ("norm", "embedding"))
        is_equal = len({call.num_parameters for call in calls}) < len(calls)
        if len(calls) < 2 or inside or around or no_layer or (must_be_equal and not is_equal):
            continue
        if (stack := _stack((parent, kind), calls)) is not None:
            chosen.append(stack)
            taken += [call.place for call in calls]
    return tuple(chosen)


def _stack(key: tuple[str, str], calls: Sequence[Call]) -> Stack | None:
    first = calls[0]
    if first.writes is None:
        return None
    begins = first.reads or first.writes
    levels = [Level(f"{key[0]} (input)" if key[0] else "(input)", begins, None)]
    levels += [
        Level(call.place, call.writes, call.gradient, call.num_parameters) for call in calls if call.writes is not None
    ]
    return Stack(key[0], key[1], tuple(levels))


def _of_uses(uses: Iterable[Use]) -> Stack | None:
    layers = [use for use in uses if use.kind != "embedding" and use.writes is not None]
    if len(layers) < 2 or layers[0].reads is None:
        return None
    levels = [Level("(input)", layers[0].reads, None)]
    levels += [Level(use.name, use.writes, None, use.fan_in * use.fan_out) for use in layers if use.writes is not None]
    return Stack("", "matmul", tuple(levels), is_chain=True)


def growth(levels: Sequence[Level], place: int) -> tuple[float | None, float | None]:
    """How many times larger the signal leaves a level than it left the one before, and the gradient on its way back."""
    if place == 0:
        return None, None
    here, before = levels[place], levels[place - 1]
    return _ratio(here.signal, before.signal), _ratio(before.gradient, here.gradient)


def _ratio(upper: Size | None, lower: Size | None) -> float | None:
    if upper is None or lower is None or not lower.rms or not math.isfinite(upper.rms) or not math.isfinite(lower.rms):
        return None
    return upper.rms / lower.rms
