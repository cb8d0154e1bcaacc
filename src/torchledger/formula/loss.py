"""Cross-entropy of the logits, walked on the tape: three ways to run it, which differ in what the logits cost."""

from __future__ import annotations

from torchledger import ops
from torchledger.formula.tape import Tape
from torchledger.formula.value import Value
from torchledger.ledger import Amount, Work
from torchledger.ops import Piece


def cross_entropy(tape: Tape, logits: Value) -> Value:
    """Mean cross-entropy in FP32 of logits [B, T, V]."""
    kinds = {"eager": _eager, "vocabulary parallel": _vocabulary_parallel, "compiled": _compiled}
    return kinds[tape.kernels.loss](tape, logits)


def _eager(tape: Tape, logits: Value) -> Value:
    """torch's: logits in FP32 beside those in 16 bit, log-probabilities that are kept, and two gradients of them."""
    rows, columns = logits.shape[0] * logits.shape[1], logits.shape[-1]
    wide = tape.cast("", "logits in FP32", logits, "fp32")
    logs = tape.make("log-probabilities", (rows, columns), "fp32")
    logs = tape.op(
        "",
        "log_softmax",
        ops.log_softmax(rows, columns),
        logs,
        reads=(wide,),
        backward=ops.log_softmax_backward(rows, columns),
        keeps_made=(logs,),
        holds=(logits,),
    )
    total, loss = tape.make("number of targets", (), "fp32"), tape.make("loss", (), "fp32")
    tape.op(
        "",
        "nll_loss",
        ops.nll_loss(rows, columns),
        total,
        loss,
        reads=(logs,),
        backward=ops.nll_loss_backward(rows, columns),
        keeps_made=(total,),
        holds=(logits, wide),
    )
    return loss


def _vocabulary_parallel(tape: Tape, logits: Value) -> Value:
    """Megatron's (megatron/core/tensor_parallel/cross_entropy.py): in place, on FP32 logits of one rank's vocabulary.

    Largest (1 read), differences (1, 1), exponentials (1, 1), their sum (1), quotients (1, 1): the softmax is kept, and
    becomes the gradient: what the target has less, times the loss's gradient (1, 1).
    """
    rows, columns = logits.shape[0] * logits.shape[1], logits.shape[-1]
    wide = tape.cast("", "logits in FP32", logits, "fp32")
    target = tape.make("target in this rank's vocabulary", (rows,), "int64", requires_grad=False)
    mask = tape.make("target mask", (rows,), "bool", requires_grad=False)
    loss = tape.make("loss", (rows,), "fp32")
    elements = rows * columns
    (forward,) = ops.log_softmax(rows, columns)
    tape.op(
        "",
        "cross_entropy",
        ops.moved((forward,), bytes_read=5 * 4 * elements, bytes_written=3 * 4 * elements),
        loss,
        target,
        mask,
        reads=(wide,),
        backward=(
            Piece(
                "cross_entropy_backward",
                "loss",
                Work.of_flops(rows + elements, bytes_read=4 * elements, bytes_written=4 * elements),
                forward.shape,
                "input",
            ),
        ),
        keeps=(wide,),
        keeps_made=(target, mask),
        holds=(logits,),
        over=True,
    )
    return loss


def _compiled(tape: Tape, logits: Value) -> Value:
    """One kernel a direction: logits are read in their own format and kept, with a logsumexp a row."""
    rows, columns, size = logits.shape[0] * logits.shape[1], logits.shape[-1], logits.element_bytes
    loss, logsumexp = tape.make("loss", (), "fp32"), tape.make("logsumexp", (rows,), "fp32")
    elements: Amount = rows * columns
    forward, backward = ops.log_softmax(rows, columns), ops.log_softmax_backward(rows, columns)
    tape.op(
        "",
        "cross_entropy",
        ops.moved(forward, bytes_read=size * elements, bytes_written=4 * rows),
        loss,
        logsumexp,
        reads=(logits,),
        backward=ops.moved(backward, bytes_read=size * elements, bytes_written=size * elements),
        keeps=(logits,),
        keeps_made=(logsumexp,),
    )
    return loss
