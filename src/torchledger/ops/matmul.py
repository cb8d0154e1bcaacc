"""Matrix products and the three products of a linear layer. A multiply-add is 2 FLOPs."""

from __future__ import annotations

from torchledger.ledger import Amount, GradientOf, Kind, Work
from torchledger.ops.piece import Piece
from torchledger.ops.registry import rule


@rule
def matmul(
    b: Amount,
    m: Amount,
    n: Amount,
    k: Amount,
    *,
    element_bytes: Amount = 4,
    op: str = "matmul",
    kind: Kind = "matmul",
    gradient_of: GradientOf = "none",
) -> tuple[Piece, ...]:
    """`b` products [m, k] @ [k, n] -> [m, n]: 2·b·m·n·k FLOPs (Golub and Van Loan, Matrix Computations, 1.1.11).

    Args:
        b: number of products, each with its own operands.
        m: rows of the left operand.
        n: columns of the right operand.
        k: the index that is contracted.
        element_bytes: bytes of one element of operands and result.
        op: name of the piece.
        kind: `attention` where the product is a part of attention.
        gradient_of: whose gradient it is, in the backward pass.

    >>> matmul(1, 2, 3, 4)[0].work.flops_full  # 2·2·3·4
    48
    >>> matmul(1, 2, 3, 4)[0].work.bytes_read  # 4·(2·4 + 4·3)
    80
    """
    work = Work.of_flops(
        2 * b * m * n * k,
        bytes_read=element_bytes * b * (m * k + k * n),
        bytes_written=element_bytes * b * m * n,
    )
    return (Piece(op, kind, work, (("b", b), ("m", m), ("n", n), ("k", k)), gradient_of),)


@rule
def linear(
    tokens: Amount, inputs: Amount, outputs: Amount, *, bias: bool = False, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """Forward y = x Wᵀ + b, x [tokens, inputs], W [outputs, inputs]: 2·tokens·inputs·outputs, and an add for b.

    >>> [(piece.kind, piece.work.flops_full) for piece in linear(8, 4, 2, bias=True)]
    [('matmul', 128), ('pointwise', 16)]
    """
    product = matmul(1, tokens, outputs, inputs, element_bytes=element_bytes)
    if not bias:
        return product
    return (*product, *bias_add(tokens, outputs, element_bytes=element_bytes))


@rule
def bias_add(tokens: Amount, outputs: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """The bias inside a linear kernel: one add an output; of its bytes only the bias itself is read anew.

    >>> bias_add(8, 2)[0].work
    Work(flops_full=16, flops_exact=16, flops_executed=16, bytes_read=8)
    """
    work = Work.of_flops(tokens * outputs, bytes_read=element_bytes * outputs)
    return (Piece("bias_add", "pointwise", work, (("tokens", tokens), ("n", outputs))),)


@rule
def linear_input_gradient(
    tokens: Amount, inputs: Amount, outputs: Amount, *, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """Input gradient dx = dy W: [tokens, outputs] @ [outputs, inputs], as many FLOPs as the forward product.

    >>> linear_input_gradient(8, 4, 2)[0].work.flops_full  # 2·8·4·2
    128
    """
    return matmul(1, tokens, inputs, outputs, element_bytes=element_bytes, gradient_of="input")


@rule
def linear_weight_gradient(
    tokens: Amount, inputs: Amount, outputs: Amount, *, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """Weight gradient dW = dyᵀ x: [outputs, tokens] @ [tokens, inputs], as many FLOPs as the forward product.

    >>> linear_weight_gradient(8, 4, 2)[0].shape
    (('b', 1), ('m', 2), ('n', 4), ('k', 8))
    """
    return matmul(1, outputs, inputs, tokens, element_bytes=element_bytes, gradient_of="weight")


@rule
def bias_gradient(tokens: Amount, outputs: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """Bias gradient db = sum of dy over tokens: tokens - 1 adds an output.

    >>> bias_gradient(8, 2)[0].work.flops_full  # 7·2
    14
    """
    work = Work.of_flops(
        (tokens - 1) * outputs,
        bytes_read=element_bytes * tokens * outputs,
        bytes_written=element_bytes * outputs,
    )
    return (Piece("bias_gradient", "reduction", work, (("tokens", tokens), ("n", outputs)), "weight"),)
