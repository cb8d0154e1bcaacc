"""The largest batch, and the longest sequence, that fits into a memory: found with few traces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import nn

from torchledger.tracer.errors import NothingFits, TraceError
from torchledger.tracer.plain_step import StepOptions
from torchledger.tracer.result import Trace
from torchledger.tracer.step import trace_step
from torchledger.tracer.whatif import Change, traced_with

OnTried: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest size that fits.

    Attributes:
        size: the batch size or the sequence length.
        need_bytes: what it takes.
        limit_bytes: what there is.
        num_traces: how many steps were traced to find it.
        tried: what each size that was traced takes, in bytes.
        is_capped: whether the search ended at the largest size that was asked for, and not at the memory.
    """

    size: int
    need_bytes: int
    limit_bytes: int
    num_traces: int
    tried: dict[int, int] = field(compare=False)
    is_capped: bool = False


def max_batch(
    model: nn.Module | Callable[[int], Callable[[], object]],
    num_bytes: int,
    batch: Any = None,
    *,
    change: Change | None = None,
    at_most: int = 1 << 20,
    on_tried: OnTried | None = None,
    **options: Any,
) -> Largest:
    """The largest batch whose step fits into a memory.

    Args:
        model: a model, with `batch`; or a function of the batch size that builds a step, as `trace_step` takes it.
        num_bytes: the memory in bytes, less what contexts and other processes take.
        batch: an example; only its shapes count, dimension 0 is the batch size.
        change: another recipe (checkpointing, precision ...).
        at_most: the largest size that is tried.
        on_tried: told every size that was traced, and the bytes that it takes.
        options: those of `trace` (of `trace_step` for a builder).

    Returns:
        The size, what it takes and how many traces it took. Peaks are of allocated bytes on the CPU, of bytes reserved
        by the caching allocator with `target="cuda"`.

    Raises:
        NothingFits: not even 1 fits; says how much that takes.
        TraceError: the step cannot be traced.
    """
    need = _need(model, batch, "micro_batch", limit=num_bytes, change=change, options=options)
    return _largest("batch", need, num_bytes, at_most, on_tried)


def max_sequence(
    model: nn.Module | Callable[[int], Callable[[], object]],
    num_bytes: int,
    batch: Any = None,
    *,
    change: Change | None = None,
    at_most: int = 1 << 24,
    on_tried: OnTried | None = None,
    **options: Any,
) -> Largest:
    """The longest sequence whose step fits into a memory; as `max_batch`, dimension 1 of the batch being its length.

    Learned positions end somewhere: pass `at_most`.

    Raises:
        NothingFits: not even 1 token fits; says how much that takes.
        TraceError: the step cannot be traced.
    """
    need = _need(model, batch, "sequence_length", limit=num_bytes, change=change, options=options)
    return _largest("sequence", need, num_bytes, at_most, on_tried)


def _need(
    model: Any, batch: Any, name: str, *, limit: int, change: Change | None, options: dict[str, Any]
) -> Callable[[int], int]:
    """Bytes that a step of some size needs."""
    if not isinstance(model, nn.Module):
        return lambda size: _taken(trace_step(lambda: model(size), **options), limit)
    fixed, plain = change or Change(), StepOptions(**options)

    def need(size: int) -> int:
        values = {field: getattr(fixed, field) for field in Change.__slots__} | {name: size}
        return _taken(traced_with(model, batch, Change(**values), plain), limit)

    return need


def _taken(trace: Trace, limit: int) -> int:
    """What a step takes. On a GPU the caching allocator lives with less than it would take, where it must."""
    if trace.target != "cuda":
        return trace.peak().peak_bytes
    taken = trace.reserve().peak.reserved_bytes
    return limit if taken > limit and trace.reserve(capacity_bytes=limit).fits else taken


def _largest(
    what: str, need: Callable[[int], int], limit: int, at_most: int, on_tried: OnTried | None = None
) -> Largest:
    """Search between a size that fits and one that does not, where the last two would cross the limit.

    What a step needs grows with its size nearly in proportion (attention that writes its scores: with its square), so
    few steps are enough; where the guess does not narrow the gap by half twice, the middle is taken.
    """
    for name, number in (("memory", limit), ("largest size", at_most)):
        _require_whole(name, number)
    tried: dict[int, int] = {}

    def fits(size: int) -> bool:
        if size not in tried:
            tried[size] = need(size)
            if on_tried is not None:
                on_tried(size, tried[size])
        return tried[size] <= limit

    if not fits(1):
        raise NothingFits(
            f"no {what} fits into {limit:,} bytes: the least takes {tried[1]:,}",
            least_bytes=tried[1],
            remedy="Take a smaller model, checkpointing, another precision or optimizer",
        )
    low, high = 1, 2
    while high < at_most and fits(high):
        low, high = high, _beyond(tried, low, high, limit, at_most)
    if high >= at_most and fits(at_most):
        return Largest(at_most, tried[at_most], limit, len(tried), tried, is_capped=True)
    high = min(high, at_most)
    turn = 0
    while high - low > 1:
        middle = (low + high) // 2
        guess = _crossing(tried, low, high, limit) if turn % 3 < 2 else middle
        turn += 1
        if fits(guess):
            low = guess
        else:
            high = guess
    return Largest(low, tried[low], limit, len(tried), tried)


def _require_whole(name: str, number: object) -> None:
    """Refuse a text ("80GB") and what is below 1."""
    if not isinstance(number, (int, float)) or number < 1:
        raise TraceError(f"the {name} is {number!r}", remedy="It is a number of at least 1; of bytes, as 80 * 10**9")


def _beyond(tried: dict[int, int], low: int, high: int, limit: int, at_most: int) -> int:
    """A size that is likely too large: a little past where the line through the last two crosses the limit."""
    slope = (tried[high] - tried[low]) / (high - low)
    if slope <= 0:
        return min(high * 2, at_most)
    crossing = int(high + (limit - tried[high]) / slope) + 1
    return min(max(high + 1, crossing), at_most, high * 64)


def _crossing(tried: dict[int, int], low: int, high: int, limit: int) -> int:
    """Where the line between a size that fits and one that does not crosses the limit, strictly between them."""
    share = (limit - tried[low]) / max(tried[high] - tried[low], 1)
    return min(max(low + int(share * (high - low)), low + 1), high - 1)
