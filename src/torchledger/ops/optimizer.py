"""Optimizer steps and gradient clipping. Implementations differ in the bytes they move, not in FLOPs."""

from __future__ import annotations

from collections.abc import Mapping

from torchledger.ledger import Amount, Work
from torchledger.ops.piece import Piece
from torchledger.ops.registry import rule

# Tensors read and written an element, by implementation. `fused` is one kernel. `loop` and `foreach` run the same
# kernels in the same order (torch/optim/adamw.py): [p·(1 - lr·wd)], lerp(m, g), v·β2, v + (1 - β2)·g·g, √v,
# ·/bias correction, + ε, p + step·m/d.
_ADAMW_READS: Mapping[str, int] = {"fused": 4, "foreach": 11, "loop": 11}
_ADAMW_WRITES: Mapping[str, int] = {"fused": 3, "foreach": 7, "loop": 7}


@rule
def adamw(
    elements: Amount,
    *,
    weight_decay: bool = True,
    implementation: str = "fused",
    element_bytes: Amount = 4,
) -> tuple[Piece, ...]:
    """One AdamW step (Loshchilov and Hutter, arXiv:1711.05101, algorithm 2) on `elements` parameters.

    An element: m + (1 - β1)·(g - m) is 3, β2·v + (1 - β2)·g·g is 4, √v / c + ε is 1 with 2 transcendentals,
    p - step·m/d is 2 with 1 transcendental; decay, p·(1 - lr·wd), is 1 more. The two numbers that only depend on the
    step (bias corrections) are not counted.

    Args:
        elements: parameters in this group.
        weight_decay: whether they decay.
        implementation: `fused`, `foreach` or `loop`.
        element_bytes: bytes of an element of parameter, gradient and both moments.

    Raises:
        KeyError: another implementation.

    >>> adamw(10)[0].work.flops_full, adamw(10, weight_decay=False)[0].work.flops_full
    (110, 100)
    >>> adamw(10)[0].work.bytes_moved, adamw(10, implementation="loop")[0].work.bytes_moved  # 4·10·7, 4·10·20
    (280, 800)
    """
    reads, writes = _ADAMW_READS[implementation], _ADAMW_WRITES[implementation]
    decay = 1 if weight_decay else 0
    decay_kernel = decay if implementation != "fused" else 0
    work = Work.of_flops(
        (10 + decay) * elements,
        transcendentals=3 * elements,
        bytes_read=element_bytes * (reads + decay_kernel) * elements,
        bytes_written=element_bytes * (writes + decay_kernel) * elements,
    )
    return (Piece("adamw", "optimizer", work, (("elements", elements),)),)


@rule
def sgd(
    elements: Amount,
    *,
    momentum: bool = False,
    weight_decay: bool = False,
    implementation: str = "fused",
    element_bytes: Amount = 4,
) -> tuple[Piece, ...]:
    """One SGD step (Sutskever et al., ICML 2013, section 2, in torch's form): [g + wd·p], [b = μ·b + g], p - lr·b.

    >>> sgd(10)[0].work.flops_full, sgd(10, momentum=True, weight_decay=True)[0].work.flops_full
    (20, 60)
    """
    moving, decaying = (1 if momentum else 0), (1 if weight_decay else 0)
    # Fused: p and g in, p out, the buffer in and out. Otherwise each step is a kernel: g + wd·p (2 in, 1 out);
    # μ·b (1, 1), b + g (2, 1); p - lr·b (2, 1).
    if implementation == "fused":
        reads, writes = 2 + moving, 1 + moving
    else:
        reads, writes = 2 + 3 * moving + 2 * decaying, 1 + 2 * moving + decaying
    work = Work.of_flops(
        (2 + 2 * moving + 2 * decaying) * elements,
        bytes_read=element_bytes * reads * elements,
        bytes_written=element_bytes * writes * elements,
    )
    return (Piece("sgd", "optimizer", work, (("elements", elements),)),)


@rule
def clip_grad_norm(elements: Amount, tensors: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """Scale all gradients by min(1, largest norm / (norm + ε)) (Pascanu et al., arXiv:1211.5063, algorithm 1).

    n elements in t tensors: n squares and n - t adds, t roots; t squares, t - 1 adds, a root; an add, a division, a
    compare; n products. torch multiplies also where the factor is 1.

    >>> clip_grad_norm(100, 4)[0].work.flops_full  # (2·100 - 4) + (2·4 - 1) + 2 + 100
    305
    """
    work = Work.of_flops(
        (2 * elements - tensors) + (2 * tensors - 1) + 2 + elements,
        transcendentals=tensors + 2,
        bytes_read=2 * element_bytes * elements + element_bytes * tensors,
        bytes_written=element_bytes * elements + element_bytes * tensors,
    )
    return (Piece("clip_grad_norm", "optimizer", work, (("elements", elements), ("tensors", tensors))),)


@rule
def gradient_accumulation(elements: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """A later micro-batch's gradient added to the one that is there: one add an element.

    >>> gradient_accumulation(10)[0].work.flops_full
    10
    """
    work = Work.of_flops(elements, bytes_read=2 * element_bytes * elements, bytes_written=element_bytes * elements)
    return (Piece("gradient_accumulation", "pointwise", work, (("elements", elements),), "weight"),)
