"""The lecture's linear networks in closed form: L square maps without activation functions, maybe an output map.

Stanford CS336, lecture 2 (resource accounting), counts a deep linear network [B, D] -> [B, D] -> ... as L·D² parameters
and B·D·L activations, and a two-layer one [B, D] -> [B, D] -> [B, K] as 2·B·D·(D + K) FLOPs forward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchledger import ops
from torchledger.formula.dense import linear
from torchledger.formula.tape import Tape
from torchledger.formula.value import ELEMENT_BYTES, Activation, Value
from torchledger.ledger import Amount, Ledger


@dataclass(frozen=True, slots=True)
class LinearNetwork:
    """A linear network's books.

    Attributes:
        ledger: its step without an optimizer: forward, mean square of the output as loss, backward.
        num_parameters: L·D² (+ D·K).
        kept_bytes: B·D·L times the bytes of an element: what the closed form says is kept.
        activations: what is kept.
        left_out: by name, the bytes that are kept and that the closed form leaves out; `kept_bytes` and these make the
            sum of `activations`.
        held_anyway: by name, bytes that the backward pass needs and that are no activations.
    """

    ledger: Ledger
    num_parameters: Amount
    kept_bytes: Amount
    activations: tuple[Activation, ...]
    left_out: Mapping[str, Amount]
    held_anyway: Mapping[str, Amount]


def linear_network(
    batch_size: Amount,
    hidden_size: Amount,
    num_layers: int,
    *,
    outputs: Amount = None,
    input_gradient: bool = False,
    precision: str = "fp32",
) -> LinearNetwork:
    """B rows through L maps [D, D], and through one map [K, D] where `outputs` K is given; loss is the mean square.

    The kept activations are h₁ ... h_L, each the input of the next map or of the loss: B·D·L elements. The first map's
    input is the batch, which is alive anyway. No map needs the gradient of the batch, which saves 2·B·D·D FLOPs.

    Args:
        batch_size: rows B.
        hidden_size: width D.
        num_layers: square maps L, named `layers.0` and on.
        outputs: width K of the output map `head`.
        input_gradient: whether the batch takes a gradient too.
        precision: `fp32`, or `bf16` under autocast.

    >>> two = linear_network(4, 8, 1, outputs=2)
    >>> two.ledger.where(phase="forward").flops, 2 * 4 * 8 * (8 + 2)
    (640, 640)
    >>> two.ledger.where(phase="backward").flops, 4 * 4 * 8 * 2 + 2 * 4 * 8 * 8
    (768, 768)
    >>> deep = linear_network(4, 8, 3)
    >>> deep.num_parameters, deep.kept_bytes, dict(deep.left_out)
    (192, 384, {'loss': 4})
    """
    B, D, L, K = batch_size, hidden_size, num_layers, outputs
    tape = Tape(precision)
    h = tape.given("batch", (B, D), "fp32", requires_grad=input_gradient)
    for index in range(L):
        h = linear(tape, f"layers.{index}", h, D)
    if K is not None:
        h = linear(tape, "head", h, K)
    _mean_square(tape, h)
    element = ELEMENT_BYTES["bf16" if precision == "bf16" else "fp32"]
    left_out: dict[str, Amount] = {"loss": 4}
    if K is not None:
        left_out["output"] = element * B * K
    if precision == "bf16":
        left_out["batch in BF16"] = element * B * D
        # the first map has no use for its weight, unless the batch takes a gradient
        weights = (L - 1 + input_gradient) * D * D + (0 if K is None else D * K)
        left_out["weights in BF16"] = element * weights
        left_out["output in FP32, for the loss"] = 4 * B * (D if K is None else K)
    return LinearNetwork(
        ledger=Ledger.of(tape.lines()),
        num_parameters=L * D * D + (0 if K is None else D * K),
        kept_bytes=B * D * L * element,
        activations=tape.activations(),
        left_out=left_out,
        held_anyway={"batch": 4 * B * D},
    )


def _mean_square(tape: Tape, y: Value) -> None:
    """The loss: y², kept in FP32, and its mean. Whoever computes it holds y itself."""
    tape.save("the training step", y)
    y = tape.cast("", "output in FP32", y, "fp32")
    loss = tape.make("loss", (), "fp32")
    tape.save("square", y)
    tape.run("", ops.pointwise("square", y.num_elements), "fp32")
    tape.then("", ops.pointwise_backward("square", y.num_elements), "fp32")
    tape.run("", ops.reduction("mean", 1, y.num_elements), "fp32", loss)
    tape.save("the training step", loss)
