"""The most that an operation without a price could cost, from nothing but the sizes of its tensors."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from math import isqrt

from torchledger.tracer.signature import Signature, TensorMeta


def most_it_could_cost(signature: Signature, results: tuple[TensorMeta, ...]) -> int:
    """FLOPs of the largest contraction that an operation's tensors allow: a bound on what is not known.

    A contraction of A and B into C multiplies at most √(|A|·|B|·|C|) pairs, every index being in two of the three
    (Loomis and Whitney, 1949, as Irony, Toledo and Tiskin use it, 2004, lemma 3.1); a matrix product takes exactly that
    many. Where two operands agree in all but their last-but-one size, they can be the queries and keys of attention,
    whose scores are no result: twice the product of all of them.

    Args:
        signature: the operation call.
        results: what it returned.

    >>> import torch
    >>> meta = lambda *shape: TensorMeta(shape, (0,) * len(shape), torch.float32)
    >>> most_it_could_cost(Signature("mylib.mm.default", (meta(8, 4), meta(4, 2))), (meta(8, 2),))  # 2·8·4·2
    128
    """
    operands = [meta.shape for meta in signature.tensors()]
    products = [isqrt(a * b * c) for a, b, c in _triples(operands, [meta.shape for meta in results])]
    attention = [2 * _scores(a, b) for a, b in itertools.combinations_with_replacement(operands, 2)]
    return 2 * max((*products, *attention), default=0)


def _triples(operands: list[tuple[int, ...]], results: list[tuple[int, ...]]) -> Iterable[tuple[int, int, int]]:
    """Sizes of two operands and a result; where there is one operand alone it is both."""
    sizes = sorted((_size(shape) for shape in operands), reverse=True)
    if not sizes:
        return
    second = sizes[1] if len(sizes) > 1 else sizes[0]
    for shape in results or operands[:1]:
        yield sizes[0], second, _size(shape)


def _scores(queries: tuple[int, ...], keys: tuple[int, ...]) -> int:
    """Multiplications of all query-key pairs, 0 for tensors that cannot be queries and keys."""
    if not 3 <= len(queries) == len(keys) or queries[:-2] != keys[:-2] or queries[-1] != keys[-1]:
        return 0
    return _size(queries) * keys[-2]


def _size(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
