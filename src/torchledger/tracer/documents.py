"""Exact attention of packed documents: a token sees its own document only, and which that is no trace can see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torchledger.ledger import Line
from torchledger.ops import causal_pairs
from torchledger.tracer.errors import TraceError
from torchledger.tracer.result import Trace


def document_exact(trace: Trace, lengths: Sequence[int], *, causal: bool = True) -> Trace:
    """The trace with attention's exact FLOPs counted document by document.

    Every attention line whose queries and keys are the packed sequence (the lengths' sum) is counted on the pairs of
    its documents: l·(l+1)/2 for each causal one, l² otherwise. A line whose kernel says itself that it is not causal
    (exact equals full) is not.

    Args:
        trace: of a step on packed sequences.
        lengths: tokens of each document in a sequence; the same in every sequence. Nothing changes nothing.
        causal: what is taken where the mask is data.

    Raises:
        TraceError: no attention runs over that many tokens.
    """
    if not lengths:
        return trace
    tokens = sum(lengths)
    lines = tuple(_exact(line, lengths, tokens, causal=causal) for line in trace.ledger)
    if lines == trace.ledger.lines:
        raise TraceError(
            f"no attention runs over {tokens:,} tokens, the sum of the document lengths",
            remedy="The lengths of the documents in one sequence add up to its length, padding a document of its own",
        )
    assumption = f"attention stays within documents of {', '.join(map(str, lengths))} tokens"
    assumptions = (*trace.assumptions, assumption)
    return replace(trace, ledger=replace(trace.ledger, lines=lines, assumptions=assumptions), assumptions=assumptions)


def _exact(line: Line, lengths: Sequence[int], tokens: int, *, causal: bool) -> Line:
    if line.kind != "attention" or not line.work.flops_full or list(dict(line.shape).values()).count(tokens) < 2:
        return line
    if line.work.flops_exact is not None:
        causal = line.work.flops_exact < line.work.flops_full
    pairs = sum(causal_pairs(length) if causal else length**2 for length in lengths)
    return replace(line, work=replace(line.work, flops_exact=line.work.flops_full * pairs // tokens**2))
