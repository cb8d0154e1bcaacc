"""Exact attention of packed documents: a token sees its own document only, and which that is no trace can see."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torchledger.ledger import Amount, Line
from torchledger.ops import causal_pairs
from torchledger.tracer.errors import TraceError
from torchledger.tracer.pricing.attention import band
from torchledger.tracer.result import Trace


def document_exact(trace: Trace, lengths: Sequence[int], *, causal: bool = True) -> Trace:
    """The trace with attention's exact FLOPs counted document by document.

    Every attention line whose queries and keys are the packed sequence (the lengths' sum) is counted on the pairs of
    its documents: l·(l+1)/2 for each causal one, l² otherwise. A line whose kernel says itself that it is not causal
    (exact equals full) is not; one with a causal window (told by the count of its pairs) keeps it; any other is unknown
    then. A kernel of sequences end to end (varlen) runs the documents alone, within its own window, so that its full
    and executed FLOPs are theirs as well; it must have been told as many ends as there are documents.

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
    if line.kind != "attention" or not line.work.flops_full:
        return line
    shape = dict(line.shape)
    if "sequences" in shape:
        return _end_to_end(line, shape, lengths)
    if list(shape.values()).count(tokens) < 2:
        return line
    window = 0
    if line.work.flops_exact is not None:
        causal = line.work.flops_exact < line.work.flops_full
        seen = line.work.flops_exact * tokens**2 // line.work.flops_full
        window = bisect_left(range(1, tokens), seen, key=lambda keys: causal_pairs(tokens, keys)) + 1
        if causal and causal_pairs(tokens, window) != seen:  # neither causal nor a causal window
            return replace(line, work=replace(line.work, flops_exact=None))
    pairs = sum(causal_pairs(length, window) if causal else length**2 for length in lengths)
    return replace(line, work=replace(line.work, flops_exact=line.work.flops_full * pairs // tokens**2))


def _end_to_end(line: Line, shape: Mapping[str, Amount], lengths: Sequence[int]) -> Line:
    """A line of sequences end to end, which were taken to be equally long, on the documents that they are."""
    sequences, rest = shape["sequences"], shape["sequences"] % len(lengths)
    if rest or shape["queries"] != shape["keys"] or shape["queries"] != sum(lengths) // len(lengths):
        return line
    rows = sequences // len(lengths)
    taken = sequences * shape["queries"] * shape["keys"]
    full = rows * sum(length**2 for length in lengths)
    exact = rows * sum(band(length, length, 0, shape["left"], shape["right"]) for length in lengths)
    work = line.work
    return replace(
        line,
        work=replace(
            work,
            flops_full=work.flops_full * full // taken,
            flops_exact=work.flops_full * exact // taken,
            flops_executed=work.flops_executed * full // taken,
        ),
    )
