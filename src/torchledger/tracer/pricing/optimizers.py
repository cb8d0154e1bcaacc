"""Prices of optimizers that run as one kernel, and of the gradient scaler."""

from __future__ import annotations

from torchledger import ops
from torchledger.ops import Piece
from torchledger.tracer.pricing.seen import Seen, price_of


@price_of("_fused_adam_", "_fused_adam", "_fused_adamw_", "_fused_adamw")
def fused_adam(seen: Seen) -> tuple[Piece, ...]:
    """One Adam or AdamW step of a list of parameters."""
    return ops.fused_adam(
        _elements(seen),
        weight_decay=bool(seen.arguments["weight_decay"]),
        decoupled="adamw" in seen.op,
        amsgrad=bool(seen.arguments["amsgrad"]),
        scaled=seen.optional("grad_scale") is not None,
    )


@price_of("_fused_sgd_", "_fused_sgd")
def fused_sgd(seen: Seen) -> tuple[Piece, ...]:
    """One SGD step of a list of parameters."""
    decays, moves = bool(seen.arguments["weight_decay"]), bool(seen.arguments["momentum"])
    return ops.sgd(_elements(seen), momentum=moves, weight_decay=decays)


@price_of("_fused_adagrad_", "_fused_adagrad")
def fused_adagrad(seen: Seen) -> tuple[Piece, ...]:
    """One Adagrad step of a list of parameters."""
    return ops.fused_adagrad(
        _elements(seen),
        weight_decay=bool(seen.arguments["weight_decay"]),
        scaled=seen.optional("grad_scale") is not None,
    )


@price_of("_amp_foreach_non_finite_check_and_unscale_", "_amp_foreach_non_finite_check_and_unscale")
def unscale(seen: Seen) -> tuple[Piece, ...]:
    """Gradients of a list brought back to their own scale."""
    return ops.unscale(_elements(seen))


@price_of("_amp_update_scale_", "_amp_update_scale")
def update_scale(seen: Seen) -> tuple[Piece, ...]:  # noqa: ARG001  # a price takes what was seen
    """The scale of the next step."""
    return ops.update_scale()


def _elements(seen: Seen) -> int:
    return sum(meta.num_elements for meta in seen.tensors("self"))
