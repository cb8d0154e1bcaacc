"""A collective as a line of the books: what one rank sends, reads, writes and adds."""

from __future__ import annotations

from torchledger.ledger import Line
from torchledger.ops import all_gather, all_reduce, all_to_all, broadcast, reduce_scatter, send
from torchledger.planner.fabric_ways import Operation


def collective_line(
    module: str,
    op: Operation,
    num_bytes: float,
    size: int,
    *,
    element_bytes: int = 2,
    number_format: str = "bf16",
    times: int = 1,
) -> Line:
    """The line of one rank, by the ring algorithms (`ops.collective`), phase "communication".

    A tensor that its ranks cannot share equally is padded, as the libraries of training do.

    Args:
        module: where it belongs.
        op: which collective.
        num_bytes: of the whole tensor: an all-gather's result, a reduce-scatter's or all-reduce's operand, one rank's
            buffer of an all-to-all, the payload of a broadcast or a send.
        size: ranks of the group.
        element_bytes: bytes of an element.
        number_format: format of the elements.
        times: how often it runs.

    >>> collective_line("layers.*.attention", "all_reduce", 800, 4).work.bytes_sent  # 2·3/4·800
    1200
    """
    elements = -(-int(num_bytes) // element_bytes)
    chunk = -(-elements // size)
    if op == "send":
        pieces = send(elements, element_bytes=element_bytes)
    elif op == "broadcast":
        pieces = broadcast(size, elements, element_bytes=element_bytes)
    elif op == "all_to_all":
        pieces = all_to_all(size, chunk * size, chunk * size, chunk, element_bytes=element_bytes)
    else:
        rule = {"all_gather": all_gather, "reduce_scatter": reduce_scatter, "all_reduce": all_reduce}[op]
        pieces = rule(size, chunk, element_bytes=element_bytes)
    (piece,) = pieces
    return Line(
        module,
        piece.op,
        piece.work,
        "collective",
        "communication",
        number_format=number_format,
        shape=piece.shape,
        times=times,
    )
