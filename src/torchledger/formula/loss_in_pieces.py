"""Head and loss of so many tokens at a time, walked on the tape: the gradients come with the loss, in the forward pass.

`trainer.loss.LossInPieces`: no logits wait for the backward pass, which only scales the gradients of the head and of
what it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from torchledger import ops
from torchledger.formula.dense import rows_of
from torchledger.formula.tape import Tape
from torchledger.formula.value import ELEMENT_BYTES, Value
from torchledger.ledger import Amount
from torchledger.ops import Piece
from torchledger.spec import ModelSpec

EAGER_ASSUMPTION = "loss in pieces: operation by operation, as this trainer runs it, whatever the kernels of the rest"


def loss_in_pieces(tape: Tape, spec: ModelSpec, h: Value, chunk: Amount) -> Value:
    """Mean cross-entropy of the head of h [B, T, E], `chunk` tokens at a time; a last piece is what remains."""
    if tape.kernels.loss != "eager":
        tape.assumptions.append(EAGER_ASSUMPTION)
    number_format = tape.matmul_format(h)
    with tape.inside("loss"):
        tape.run("", ops.pointwise("compare", rows_of(h), element_bytes=8, output_element_bytes=1), "int64")
        for rows, times in _pieces(rows_of(h), chunk):
            with tape.inside("", times):
                tape.run("", _of_loss(spec, rows, number_format), "fp32")
                for piece in _of_products(tape, spec, h, rows, number_format):
                    tape.run("", (piece,), tape.product_format(number_format))
        return _kept(tape, spec, h, chunk, number_format)


def _pieces(rows: Amount, chunk: Amount) -> list[tuple[Amount, Amount]]:
    """(tokens, how many pieces of so many).

    >>> _pieces(10, 4), _pieces(10, 16), _pieces(8, 4)
    ([(4, 2), (2, 1)], [(10, 1)], [(4, 2)])
    """
    if not isinstance(rows, int) or not isinstance(chunk, int):
        return [(chunk, rows / chunk)]
    whole, rest = divmod(rows, chunk)
    return [(size, times) for size, times in ((chunk, whole), (rest, 1)) if size and times]


def _of_products(tape: Tape, spec: ModelSpec, h: Value, rows: Amount, number_format: str) -> Iterator[Piece]:
    """Logits, and the gradients that are needed, as plain products."""
    sizes, size = (rows, h.shape[-1], spec.vocab_size), ELEMENT_BYTES[number_format]
    yield from ops.linear(*sizes, bias=spec.head_bias, element_bytes=size)
    found: Sequence[Piece] = ()
    if h.requires_grad:
        found = ops.linear_input_gradient(*sizes, element_bytes=size)
    if tape.trains:
        found = (*found, *ops.linear_weight_gradient(*sizes, element_bytes=size))
        if spec.head_bias:
            found = (*found, *ops.bias_gradient(rows, spec.vocab_size, element_bytes=size))
    yield from (replace(piece, gradient_of="none") for piece in found)


def _of_loss(spec: ModelSpec, rows: Amount, number_format: str) -> Sequence[Piece]:
    """Soft-cap, log-probabilities in FP32, their mean; the softmax in their place, less one at the target."""
    elements, size = rows * spec.vocab_size, ELEMENT_BYTES[number_format]
    capped = spec.final_logit_soft_cap is not None
    cast = number_format != "fp32"
    return (
        *(ops.pointwise("soft_cap", elements, element_bytes=size) if capped else ()),
        *(ops.copy(elements, element_bytes=size, output_element_bytes=4, op="cast") if cast else ()),
        *ops.log_softmax(rows, spec.vocab_size),
        *ops.nll_loss(rows, spec.vocab_size),
        *ops.pointwise("exp", elements),
        *ops.scatter_add(rows, 1),
        *ops.pointwise("mul", elements),
        *(ops.pointwise("mul", elements) if capped else ()),
        *(ops.copy(elements, element_bytes=4, output_element_bytes=size, op="cast") if cast else ()),
    )


def _kept(tape: Tape, spec: ModelSpec, h: Value, chunk: Amount, number_format: str) -> Value:
    """What waits for the backward pass; and what one piece holds, which the sweep sees as one operation's."""
    V, E, stored = spec.vocab_size, h.shape[-1], tape.formats.stored
    kept = [tape.make("gradient of the head's input", h.shape, h.number_format)] if h.requires_grad else []
    if tape.trains:
        kept.append(tape.make("gradient of the head", (V, E), stored))
        if spec.head_bias:
            kept.append(tape.make("gradient of the head's bias", (V,), stored))
    rows = _pieces(rows_of(h), chunk)[0][0]
    held = [tape.make("log-probabilities of a piece", (rows, V), "fp32", requires_grad=False)]
    held.append(tape.make("logits of a piece", (rows, V), number_format, requires_grad=False))
    if number_format != "fp32":
        held.append(tape.make("logits of a piece in FP32", (rows, V), "fp32", requires_grad=False))
        held.append(tape.make("head in the format of products", (V, E), number_format, requires_grad=False))
    if spec.final_logit_soft_cap is not None:
        held.append(tape.make("tanh of a piece", (rows, V), number_format, requires_grad=False))
    loss = tape.make("loss", (), "fp32")
    back = tuple(piece for each in kept for piece in ops.pointwise("scale", each.num_elements))
    pieces = ops.reduction("sum", 1, -(-rows_of(h) // chunk) if isinstance(chunk, int) else 1)
    return tape.op(
        "",
        "head and loss in pieces",
        pieces,
        loss,
        *kept,
        *held,
        reads=(h,),
        backward=back,
        keeps_made=tuple(kept),
        trains=tape.trains,
    )
