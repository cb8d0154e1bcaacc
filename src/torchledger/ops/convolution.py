"""Convolutions of any number of dimensions: the forward product and the products of its gradients.

Symbols as in Dumoulin and Visin (arXiv:1603.07285). Every tap of the kernel counts at every position, those that fall
on padding too, as the kernel that is told to run executes them. As a matrix product (im2col), a convolution of g groups
is g products [positions, taps·inputs] @ [taps·inputs, outputs], which is what `shape` says.
"""

from __future__ import annotations

from torchledger.ledger import Amount, GradientOf, Work
from torchledger.ops.matmul import bias_add, bias_gradient
from torchledger.ops.piece import Piece
from torchledger.ops.registry import rule


@rule
def convolution(  # noqa: PLR0917  # a convolution has six sizes
    batch: Amount,
    input_positions: Amount,
    output_positions: Amount,
    inputs: Amount,
    outputs: Amount,
    taps: Amount,
    *,
    groups: Amount = 1,
    transposed: bool = False,
    bias: bool = False,
    element_bytes: Amount = 4,
) -> tuple[Piece, ...]:
    """Forward: 2·batch·positions·taps·groups·inputs·outputs, the positions those of the result.

    A transposed convolution is the input gradient of a plain one (Dumoulin and Visin, chapter 4): the same product, its
    positions those of the input.

    Args:
        batch: samples.
        input_positions: product of the input's sizes (64 for 8 x 8).
        output_positions: product of the result's sizes.
        inputs: input channels of one group.
        outputs: output channels of one group.
        taps: product of the kernel's sizes (9 for 3 x 3), whatever its dilation.
        groups: number of groups; as many as channels for a depthwise convolution.
        transposed: whether it is a transposed one.
        bias: whether a bias is added.
        element_bytes: bytes of an element.

    >>> convolution(2, 1024, 256, 3, 16, 9)[0].work.flops_full  # 2·2·256·9·3·16
    442368
    """
    positions = input_positions if transposed else output_positions
    m, n, k = batch * positions, outputs, inputs * taps
    if transposed:
        n, k = outputs * taps, inputs
    x, y = _tensors(batch, input_positions, output_positions, inputs, outputs, groups)
    weight = groups * inputs * outputs * taps
    pieces = _product("convolution", groups, m, n, k, element_bytes * (x + weight), element_bytes * y)
    if not bias:
        return pieces
    return (*pieces, *bias_add(batch * output_positions, groups * outputs, element_bytes=element_bytes))


@rule
def convolution_input_gradient(  # noqa: PLR0917  # a convolution has six sizes
    batch: Amount,
    input_positions: Amount,
    output_positions: Amount,
    inputs: Amount,
    outputs: Amount,
    taps: Amount,
    *,
    groups: Amount = 1,
    transposed: bool = False,
    element_bytes: Amount = 4,
) -> tuple[Piece, ...]:
    """Input gradient: every product of the forward pass once, so as many FLOPs.

    >>> convolution_input_gradient(2, 1024, 256, 3, 16, 9)[0].work.flops_full  # 2·2·256·9·3·16
    442368
    """
    positions = input_positions if transposed else output_positions
    m, n, k = batch * positions, inputs * taps, outputs
    if transposed:
        n, k = inputs, outputs * taps
    x, y = _tensors(batch, input_positions, output_positions, inputs, outputs, groups)
    weight = groups * inputs * outputs * taps
    read, written = element_bytes * (y + weight), element_bytes * x
    return _product("convolution_input_gradient", groups, m, n, k, read, written, "input")


@rule
def convolution_weight_gradient(  # noqa: PLR0917  # a convolution has six sizes
    batch: Amount,
    input_positions: Amount,
    output_positions: Amount,
    inputs: Amount,
    outputs: Amount,
    taps: Amount,
    *,
    groups: Amount = 1,
    transposed: bool = False,
    element_bytes: Amount = 4,
) -> tuple[Piece, ...]:
    """Weight gradient: the same products summed over positions; groups share nothing, so it is no `groups` times more.

    >>> convolution_weight_gradient(2, 256, 256, 1, 1, 9, groups=16)[0].work.flops_full  # 2·2·256·9·16
    147456
    """
    positions = input_positions if transposed else output_positions
    m, n, k = outputs, inputs * taps, batch * positions
    x, y = _tensors(batch, input_positions, output_positions, inputs, outputs, groups)
    read, written = element_bytes * (x + y), element_bytes * groups * inputs * outputs * taps
    return _product("convolution_weight_gradient", groups, m, n, k, read, written, "weight")


@rule
def convolution_bias_gradient(
    batch: Amount, output_positions: Amount, channels: Amount, *, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """Bias gradient: the sum over batch and positions, one add less than it has terms.

    >>> convolution_bias_gradient(2, 256, 16)[0].work.flops_full  # (2·256 - 1)·16
    8176
    """
    return bias_gradient(batch * output_positions, channels, element_bytes=element_bytes)


def _tensors(  # noqa: PLR0917  # the sizes of its callers, in their order
    batch: Amount, input_positions: Amount, output_positions: Amount, inputs: Amount, outputs: Amount, groups: Amount
) -> tuple[Amount, Amount]:
    return batch * input_positions * groups * inputs, batch * output_positions * groups * outputs


def _product(  # noqa: PLR0917  # a product's name, sizes and bytes
    op: str,
    b: Amount,
    m: Amount,
    n: Amount,
    k: Amount,
    bytes_read: Amount,
    bytes_written: Amount,
    gradient_of: GradientOf = "none",
) -> tuple[Piece, ...]:
    work = Work.of_flops(2 * b * m * n * k, bytes_read=bytes_read, bytes_written=bytes_written)
    return (Piece(op, "convolution", work, (("b", b), ("m", m), ("n", n), ("k", k)), gradient_of),)
