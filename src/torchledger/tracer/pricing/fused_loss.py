"""Prices of a projection and its cross-entropy as one operation, chunk by chunk (`functional.linear_cross_entropy`)."""

from __future__ import annotations

from torchledger import ops
from torchledger.ledger import Work
from torchledger.ops import Piece
from torchledger.tracer.pricing.seen import Seen, price_of


@price_of("torch_nn::_linear_cross_entropy_batch_chunked")
def linear_cross_entropy(seen: Seen) -> tuple[Piece, ...]:
    """Logits, loss and, in the same pass, the gradients that will be asked for: two more products of the same size.

    Forward computes the gradients, backward scales them (torch/nn/modules/linear_cross_entropy.py), so they stand in
    the forward phase, with whose gradient they make.
    """
    of_input, of_weight, of_bias = (
        bool(seen.arguments[f"compute_{name}_grad"]) for name in ("input", "linear_weight", "linear_bias")
    )
    rows, hidden, classes, size = _sizes(seen)
    pieces = _logits(seen, gradients=of_input or of_weight or of_bias)
    if of_input:
        pieces += ops.linear_input_gradient(rows, hidden, classes, element_bytes=size)
    if of_weight:
        pieces += ops.linear_weight_gradient(rows, hidden, classes, element_bytes=size)
    return pieces + (ops.bias_gradient(rows, classes, element_bytes=size) if of_bias else ())


@price_of("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction")
def linear_cross_entropy_of_rows(seen: Seen) -> tuple[Piece, ...]:
    """Logits and loss of every row; backward makes them again, by operations of its own."""
    return _logits(seen, gradients=False)


def _logits(seen: Seen, *, gradients: bool) -> tuple[Piece, ...]:
    """A row of V: the product; largest V - 1, differences V, exp V, sum V - 1, a logarithm, its weight and sum 3.

    With gradients the softmax is made of it: a division a row, a product an element.
    """
    rows, hidden, classes, size = _sizes(seen)
    bias = seen.optional("linear_bias") is not None
    work = Work.of_flops(
        rows * (3 * classes + 1 + (classes if gradients else 0)),
        transcendentals=rows * (classes + 1 + (1 if gradients else 0)),
    )
    loss = Piece("linear_cross_entropy", "loss", work, (("rows", rows), ("columns", classes)))
    return (*ops.linear(rows, hidden, classes, bias=bias, element_bytes=size), loss)


def _sizes(seen: Seen) -> tuple[int, int, int, int]:
    x, weight = seen.tensor("input"), seen.tensor("linear_weight")
    classes = weight.num_elements // max(weight.shape[-1], 1)
    return x.num_elements // max(x.shape[-1], 1), x.shape[-1], classes, x.dtype.itemsize
