"""Optimizer steps that torch has one kernel for, beside AdamW and SGD; and the gradient scaler of mixed precision."""

from __future__ import annotations

from torchledger.ledger import Amount, Work
from torchledger.ops.piece import Piece
from torchledger.ops.registry import rule


@rule
def fused_adam(
    elements: Amount,
    *,
    weight_decay: bool = False,
    decoupled: bool = False,
    amsgrad: bool = False,
    scaled: bool = False,
    element_bytes: Amount = 4,
) -> tuple[Piece, ...]:
    """One step of Adam (Kingma and Ba, arXiv:1412.6980, algorithm 1) or AdamW as one kernel.

    An element as in `adamw`: 10 FLOPs and 3 transcendentals. Decay is g + wd·p, 2, or decoupled p·(1 - lr·wd), 1;
    amsgrad a compare (Reddi et al., ICLR 2018); a gradient that is still scaled one division.

    >>> fused_adam(10)[0].work.flops_full, fused_adam(10, weight_decay=True, amsgrad=True)[0].work.flops_full
    (100, 130)
    """
    decay = (1 if decoupled else 2) if weight_decay else 0
    states = 3 if amsgrad else 2
    work = Work.of_flops(
        (10 + decay + (1 if amsgrad else 0)) * elements,
        transcendentals=(3 + (1 if scaled else 0)) * elements,
        bytes_read=element_bytes * (2 + states) * elements,
        bytes_written=element_bytes * (1 + states + (1 if scaled else 0)) * elements,
    )
    return (Piece("adamw" if decoupled else "adam", "optimizer", work, (("elements", elements),)),)


@rule
def fused_adagrad(
    elements: Amount, *, weight_decay: bool = False, scaled: bool = False, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """One step of Adagrad (Duchi, Hazan and Singer, JMLR 12, 2011): [g + wd·p], s + g·g, p - lr·g/(√s + ε).

    >>> fused_adagrad(10)[0].work.flops_full, fused_adagrad(10)[0].work.transcendentals  # 2 + 3; √, division
    (50, 20)
    """
    work = Work.of_flops(
        (5 + (2 if weight_decay else 0)) * elements,
        transcendentals=(2 + (1 if scaled else 0)) * elements,
        bytes_read=3 * element_bytes * elements,
        bytes_written=(2 + (1 if scaled else 0)) * element_bytes * elements,
    )
    return (Piece("adagrad", "optimizer", work, (("elements", elements),)),)


@rule
def unscale(elements: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """Gradients times 1/scale, and whether one of them is not finite: a compare and a multiply an element.

    >>> unscale(10)[0].work.flops_full
    20
    """
    moved = element_bytes * elements
    work = Work.of_flops(2 * elements, bytes_read=moved, bytes_written=moved)
    return (Piece("unscale", "optimizer", work, (("elements", elements),)),)


@rule
def update_scale() -> tuple[Piece, ...]:
    """The scale grown after enough finite steps, or backed off: found inf?, count + 1, enough?, a multiply.

    >>> update_scale()[0].work.flops_full
    4
    """
    work = Work.of_flops(4, bytes_read=12, bytes_written=8)
    return (Piece("update_scale", "optimizer", work),)
