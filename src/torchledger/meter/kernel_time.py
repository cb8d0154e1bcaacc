"""Seconds of kernels that no rate of matmuls tells: a trace's fused attention calls, run on zeros."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from torchledger.ledger import Line
from torchledger.meter.calibrate import best_s
from torchledger.tracer import Signature, real_arguments
from torchledger.tracer.pricing import price
from torchledger.tracer.signature import meta_of

#: torch's fused attention on a CPU: blocks of the scores in turn, which in 16 bit goes far slower than matmuls do.
_TIMED = frozenset(
    {
        "aten._scaled_dot_product_flash_attention_for_cpu.default",
        "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
    }
)


def kernel_seconds(signatures: Iterable[Signature], *, budget_s: float = 0.1) -> tuple[tuple[Line, float], ...]:
    """Time every distinct call of fused attention, with the threads that are set now.

    Args:
        signatures: calls of a trace; those of other operations are left out, equal ones are timed once.
        budget_s: for each, after two runs at least: one to warm up, one to measure.

    Returns:
        Lines of one time of each, as a trace would have them, and seconds; those of a kernel stand on its first line,
        and the others that it does within take none.
    """
    found: list[tuple[Line, float]] = []
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        for signature in dict.fromkeys(each for each in signatures if each.op in _TIMED):
            args, kwargs = real_arguments(signature)
            operation = signature.overload()
            results = tuple(meta_of(each) for each in operation(*args, **kwargs) if isinstance(each, torch.Tensor))
            seconds = best_s(lambda: operation(*args, **kwargs), torch.device("cpu"), budget_s, least=1)  # noqa: B023  # run at once
            priced = price(signature, results)
            lines = [piece.line("", number_format=priced.number_format) for piece in priced.pieces]
            found += [(line, 0.0 if number else seconds) for number, line in enumerate(lines)]
    return tuple(found)
