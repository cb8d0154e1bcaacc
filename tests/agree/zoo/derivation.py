"""FLOPs of a step's contractions derived without the tracer: from the calls that a model's own code makes.

A function mode stands above autograd and sees `linear`, `matmul`, `einsum`, `scaled_dot_product_attention` and the
convolutions as the model's code writes them, not what torch makes of them. A contraction of K over an output of N
elements is 2·N·K FLOPs; each operand that wants a gradient costs as much again, once a gradient reaches the output.
None of the tracer's dispatch, phases or prices takes part.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

#: FLOPs forward, and for each operand that wants a gradient.
Costs = tuple[int, list[tuple[torch.Tensor, int]]]


class Derivation(TorchFunctionMode):
    """Counts the contractions of the code that runs inside.

    Attributes:
        forward: FLOPs of the calls.
        backward: FLOPs of the gradients that were asked for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.forward = 0
        self.backward = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        rule = RULES.get(func)
        if rule is not None:
            output = result[0] if isinstance(result, tuple) else result
            forward, operands = rule(output, *args, **(kwargs or {}))
            self.forward += forward
            backward = sum(flops for tensor, flops in operands if tensor.requires_grad)
            if backward and output.requires_grad:
                _contraction_of(output.grad_fn).register_prehook(lambda _gradients: self._reached(backward))
        return result

    def _reached(self, flops: int) -> None:
        self.backward += flops


def _contraction_of(node: Any) -> Any:
    """The contraction's own node below the views of its output.

    A hook on the tensor, or on a view's node, is lost when the model's code writes into the tensor in place.
    """
    while node.name().removesuffix("0") in _VIEWS:
        node = node.next_functions[0][0]
    return node


_VIEWS = {f"{name}Backward" for name in ("View", "UnsafeView", "ReshapeAlias", "Permute", "Transpose", "Squeeze")}


def _product(output: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *_: Any, **__: Any) -> Costs:
    """A product left @ right: every element of the output sums over left's last index."""
    flops = 2 * output.numel() * left.shape[-1]
    return flops, [(left, flops), (right, flops)]


def _reversed_product(output: torch.Tensor, right: torch.Tensor, left: torch.Tensor) -> Costs:
    return _product(output, left, right)


def _product_added(output: torch.Tensor, _added: torch.Tensor, *factors: torch.Tensor, **named: Any) -> Costs:
    """addmm, baddbmm: a product onto which something is added."""
    left, right = factors or (named["batch1"], named["batch2"])
    return _product(output, left, right)


def _einsum(output: torch.Tensor, equation: str, *operands: Any) -> Costs:
    """Two operands: 2 FLOPs a point of all indices, none where nothing is summed (a product of elements)."""
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    left, right = operands
    inputs, _, result = equation.replace(" ", "").partition("->")
    names = inputs.split(",")
    sizes: dict[str, int] = {}
    for name, operand in zip(names, operands, strict=True):
        # An ellipsis stands for the leading indices, equal in both operands and the result.
        count = operand.dim() - len(name.replace("...", ""))
        spelled = name.replace("...", "".join(chr(ord("A") + 26 - count + number) for number in range(count)))
        sizes.update(zip(spelled, operand.shape, strict=True))
    summed = {index for index, size in sizes.items() if index.islower() and index not in result and size > 1}
    flops = 2 * prod(sizes.values()) if summed else 0
    return flops, [(left, flops), (right, flops)]


def _attention(
    output: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any
) -> Costs:
    """Q·Kᵀ and P·V over all pairs: 2·B·H·S·T·(d + d_v); their gradients are two products each."""
    pairs = prod(query.shape[:-1]) * key.shape[-2]
    scores, mixed = 2 * pairs * query.shape[-1], 2 * pairs * value.shape[-1]
    # The gradient of P is made on the way to those of Q and K.
    return scores + mixed, [(query, scores), (key, scores), (value, mixed), (query, mixed)]


def _convolution(output: torch.Tensor, _input: torch.Tensor, weight: torch.Tensor, *_: Any, **__: Any) -> Costs:
    """Every output element sums over the input channels of its group and the kernel: weight [out, in / groups, ...]."""
    flops = 2 * output.numel() * prod(weight.shape[1:])
    return flops, [(_input, flops), (weight, flops)]


def _transposed_convolution(
    output: torch.Tensor, _input: torch.Tensor, weight: torch.Tensor, *_: Any, **__: Any
) -> Costs:
    """Every input element goes to the output channels of its group and the kernel: weight [in, out / groups, ...]."""
    flops = 2 * _input.numel() * prod(weight.shape[1:])
    return flops, [(_input, flops), (weight, flops)]


def _multi_head(
    output: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any, **named: Any
) -> Costs:
    """nn.MultiheadAttention, [tokens, batch, width]: projections of q, k, v and of the output, and attention."""
    width = query.shape[-1]
    tokens, keys, batch = query.shape[0], key.shape[0], query.shape[1]
    per_projection = 2 * batch * width * width
    attention = 4 * batch * tokens * keys * width
    weight = rest[8]  # of the output projection; the others are trained when it is
    forward = per_projection * (2 * tokens + 2 * keys) + attention
    # Gradients of the weights; of what is projected; of the output projection's input, with attention's own.
    operands = [(weight, per_projection * (2 * tokens + 2 * keys)), (weight, per_projection * tokens)]
    operands += [(weight, 2 * attention)]
    operands += [(query, per_projection * tokens), (key, per_projection * keys), (value, per_projection * keys)]
    return forward, operands


def _triangular_solve(output: torch.Tensor, matrix: torch.Tensor, *_: Any, **__: Any) -> Costs:
    """A⁻¹·B is no contraction; the gradient of A is a product of B's gradient and the solution."""
    return 0, [(matrix, 2 * output.numel() * matrix.shape[-1])]


RULES: dict[Any, Callable[..., Costs]] = {
    functional.linear: _product,
    torch.matmul: _product,
    torch.Tensor.matmul: _product,
    torch.Tensor.__matmul__: _product,
    torch.Tensor.__rmatmul__: _reversed_product,
    torch.bmm: _product,
    torch.Tensor.bmm: _product,
    torch.mm: _product,
    torch.Tensor.mm: _product,
    torch.mv: _product,
    torch.addmm: _product_added,
    torch.Tensor.addmm: _product_added,
    torch.baddbmm: _product_added,
    torch.Tensor.baddbmm: _product_added,
    torch.einsum: _einsum,
    torch.linalg.solve_triangular: _triangular_solve,
    torch._grouped_mm: _product,
    functional.scaled_dot_product_attention: _attention,
    functional.multi_head_attention_forward: _multi_head,
    **dict.fromkeys((torch.conv1d, torch.conv2d, torch.conv3d), _convolution),
    **dict.fromkeys((torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d), _transposed_convolution),
}
