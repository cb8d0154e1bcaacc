"""Collectives: what one rank of a group sends, reads, writes and adds, by the ring algorithms.

A ring of n ranks cuts a tensor of S bytes into n chunks. S is the whole tensor, as in NCCL's own tests (nccl-tests,
doc/PERFORMANCE.md): the result of an all-gather, the input of a reduce-scatter, the buffer of an all-reduce or a
broadcast. An all-gather or a reduce-scatter takes n - 1 turns in which every rank sends one chunk, so (n - 1)/n·S a
rank; an all-reduce is both, 2·(n - 1)/n·S (Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication
Operations in MPICH", IJHPCA 2005, section 4; the same factors make nccl-tests' bus bandwidth). Trees and reduction in
the network send other amounts.

Sizes are given as elements of one chunk, S/n of them, so that the arithmetic stays whole.
"""

from __future__ import annotations

from torchledger.ledger import Amount, Work
from torchledger.ops.piece import Piece
from torchledger.ops.registry import rule


@rule
def all_gather(group: Amount, chunk: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """Every rank's chunk to every rank.

    >>> all_gather(4, 25)[0].work.bytes_sent  # 3·25·4, which is 3/4 of 400
    300
    """
    size = element_bytes * chunk
    return _piece("all_gather", group, group * size, Work(0, 0, 0, 0, size, group * size, 0, (group - 1) * size))


@rule
def reduce_scatter(group: Amount, chunk: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """`group` chunks of every rank added up, one chunk of the sum to each: an add an element that arrives.

    >>> work = reduce_scatter(4, 25)[0].work
    >>> work.bytes_sent, work.flops_full  # 3·25·4, 3·25
    (300, 75)
    """
    size, adds = element_bytes * chunk, (group - 1) * chunk
    work = Work.of_flops(adds, bytes_read=group * size, bytes_written=size, bytes_sent=(group - 1) * size)
    return _piece("reduce_scatter", group, group * size, work)


@rule
def all_reduce(group: Amount, chunk: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """`group` chunks of every rank added up, the sum to each: a reduce-scatter and an all-gather.

    >>> all_reduce(4, 25)[0].work.bytes_sent  # 2·3·25·4, which is 2·3/4 of 400
    600
    """
    size, adds = element_bytes * chunk, (group - 1) * chunk
    work = Work.of_flops(adds, bytes_read=group * size, bytes_written=group * size, bytes_sent=2 * (group - 1) * size)
    return _piece("all_reduce", group, group * size, work)


@rule
def all_to_all(
    group: Amount, handed_in: Amount, handed_out: Amount, own: Amount, *, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """A part of this rank's elements to every rank, parts of theirs back; its own part stays.

    Args:
        group: ranks.
        handed_in: elements that this rank hands in, for all ranks.
        handed_out: elements that it gets, from all ranks.
        own: elements of its own part.
        element_bytes: bytes of an element.

    >>> all_to_all(4, 100, 100, 25)[0].work.bytes_sent  # 4·(100 - 25)
    300
    """
    work = Work(
        bytes_read=element_bytes * handed_in,
        bytes_written=element_bytes * handed_out,
        bytes_sent=element_bytes * (handed_in - own),
    )
    return _piece("all_to_all", group, element_bytes * handed_in, work)


@rule
def broadcast(group: Amount, elements: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """A tensor around the ring, from its root: every rank passes it on, but for the last, for which see `receive`.

    >>> broadcast(4, 100)[0].work.bytes_sent
    400
    """
    size = element_bytes * elements
    return _piece("broadcast", group, size, Work(bytes_read=size, bytes_written=size, bytes_sent=size))


@rule
def reduce(group: Amount, elements: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """A tensor around the ring to its root, every rank adding its own: the root sends nothing, for it see `receive`.

    >>> reduce(4, 100)[0].work.bytes_sent
    400
    """
    size = element_bytes * elements
    work = Work.of_flops(elements, bytes_read=size, bytes_written=size, bytes_sent=size)
    return _piece("reduce", group, size, work)


@rule
def scatter(group: Amount, chunk: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """At the root: a chunk to every other rank, which receives it (`receive`).

    >>> scatter(4, 25)[0].work.bytes_sent
    300
    """
    size = element_bytes * chunk
    work = Work(bytes_read=group * size, bytes_written=size, bytes_sent=(group - 1) * size)
    return _piece("scatter", group, group * size, work)


@rule
def send(elements: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """A tensor to one other rank.

    >>> send(100)[0].work.bytes_sent
    400
    """
    size = element_bytes * elements
    return _piece("send", 2, size, Work(bytes_read=size, bytes_sent=size))


@rule
def receive(elements: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """A tensor from other ranks, which send it.

    >>> receive(100)[0].work
    Work(bytes_written=400)
    """
    size = element_bytes * elements
    return _piece("recv", 2, size, Work(bytes_written=size))


def _piece(op: str, group: Amount, num_bytes: Amount, work: Work) -> tuple[Piece, ...]:
    return (Piece(op, "collective", work, (("group", group), ("bytes", num_bytes))),)
