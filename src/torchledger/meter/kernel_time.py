"""Seconds of the kernels of a step, each run by itself on this CPU, on operands that no cache holds."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable

import torch
from torch.utils._pytree import tree_leaves

from torchledger.ledger import Line
from torchledger.tracer import Signature, TensorMeta, real_arguments
from torchledger.tracer.pricing import price
from torchledger.tracer.signature import meta_of

#: Operands are taken in turn out of so many bytes. A kernel of a step finds its operands where others have left them,
#: mostly not in the caches of its core: with 64 MiB in turn the kernels of a step of 5 million parameters add up to a
#: fifth less than it took, with 256 MiB to 2 % more (two cores with 2 MiB each, bf16).
POOL_BYTES = 256 * 2**20
_MOST_OPERANDS = 64
_FEWEST_RUNS = 3
#: For all kernels of a step together: those of a step of GPT-2 on 2,048 tokens took 15 s, each a few times.
TOTAL_S = 8.0
_LONG_S = 0.1  # one more run than the first is enough, and its beginning counts for nothing
#: torch's FP8 product on a CPU takes tens of milliseconds for 64³ and its rate hangs on no size: the rate is measured.
_KNOWN_BY_RATE = frozenset({"aten._scaled_mm.default"})


def kernel_seconds(
    signatures: Iterable[Signature],
    *,
    budget_s: float = 0.006,
    pool_bytes: int = POOL_BYTES,
    total_s: float = TOTAL_S,
    likely_s: Callable[[Line], float] | None = None,
    on_progress: Callable[[int, int, str], None] | None = None,
) -> tuple[tuple[Line, float], ...]:
    """Time every distinct call of torch's own operations, with the threads that are set now.

    Args:
        signatures: calls of a trace; equal ones are timed once. Left out: what sends anything, what has no cost, and
            what zeros cannot stand in for.
        budget_s: for each, after three runs at least; of one that takes long, after one.
        pool_bytes: operands are taken in turn out of so many bytes, and are two sets at least; one set where it alone
            is larger than every cache, so that no more is held than the step itself holds.
        total_s: for all. What would take longer than is left is left out.
        likely_s: how long a line probably takes. The shortest kernels are timed first, since the larger one is, the
            better a roofline tells its time; without it they come as they are.
        on_progress: told (done, total, operation) before each.

    Returns:
        Lines of one time of each, as a trace would have them, and the seconds that a quarter of the runs stayed below;
        those of a kernel stand on its first line, and the others that it does within take none.
    """
    distinct = list(dict.fromkeys(each for each in signatures if _is_timed(each)))
    likely = (
        dict.fromkeys(distinct, 0.0) if likely_s is None else {each: _likely_s(each, likely_s) for each in distinct}
    )
    distinct.sort(key=likely.__getitem__)
    found: list[tuple[Line, float]] = []
    end = time.perf_counter() + total_s
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        for number, signature in enumerate(distinct):
            if time.perf_counter() + 2 * likely[signature] > end:
                break  # the others keep their roofline, which is said
            if on_progress is not None:
                on_progress(number, len(distinct), signature.op)
            try:
                seconds, results = _usual_s(signature, budget_s, pool_bytes)
            except (RuntimeError, AttributeError, TypeError, ValueError, IndexError):
                continue  # so does this one
            lines = _lines(signature, results)
            found += [(line, 0.0 if place else seconds) for place, line in enumerate(lines)]
    return tuple(found)


def _lines(signature: Signature, results: list[torch.Tensor]) -> list[Line]:
    """The lines that a trace would have of the call."""
    priced = price(signature, tuple(meta_of(each) for each in results))
    return [piece.line("", number_format=priced.number_format) for piece in priced.pieces]


def _likely_s(signature: Signature, likely_s: Callable[[Line], float]) -> float:
    """Seconds that a call probably takes; 0 where nobody can say without running it."""

    def make(meta: TensorMeta) -> torch.Tensor:
        return torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype, device="meta")

    args, kwargs = signature.arguments(make)
    try:
        results = _tensors(signature.overload()(*args, **kwargs))
    except (RuntimeError, AttributeError, TypeError, ValueError, IndexError):
        return 0.0
    return sum(likely_s(line) for line in _lines(signature, results))


def _is_timed(signature: Signature) -> bool:
    return signature.op.startswith("aten.") and signature.op not in _KNOWN_BY_RATE


def _usual_s(signature: Signature, budget_s: float, pool_bytes: int) -> tuple[float, list[torch.Tensor]]:
    """Seconds of a run, and the tensors that the last one gave."""
    operation, first = signature.overload(), real_arguments(signature)
    held_bytes = _held_bytes(first)
    num_sets = 1 if held_bytes >= POOL_BYTES else min(_MOST_OPERANDS, max(2, pool_bytes // max(1, held_bytes)))
    operands = itertools.cycle([first, *(real_arguments(signature) for _ in range(num_sets - 1))])

    def run() -> tuple[float, list[torch.Tensor]]:
        args, kwargs = next(operands)
        begin = time.perf_counter()
        result = operation(*args, **kwargs)
        return time.perf_counter() - begin, _tensors(result)

    first_s, results = run()
    seconds: list[float] = []
    fewest, end = 1 if first_s > _LONG_S else _FEWEST_RUNS, time.perf_counter() + budget_s
    while len(seconds) < fewest or time.perf_counter() < end:
        results.clear()  # in a step its memory is free by the time that the next call of it runs
        taken, results = run()
        seconds.append(taken)
    # a quarter from below: beside other processes half of the runs may have waited for a core
    return sorted(seconds)[len(seconds) // 4], results


def _tensors(result: object) -> list[torch.Tensor]:
    return [each for each in tree_leaves(result) if isinstance(each, torch.Tensor)]


def _held_bytes(operands: object) -> int:
    """Bytes of all storages among the operands, each once."""
    storages = {
        each.untyped_storage().data_ptr(): each.untyped_storage().nbytes()
        for each in tree_leaves(operands)
        if isinstance(each, torch.Tensor)
    }
    return sum(storages.values())
