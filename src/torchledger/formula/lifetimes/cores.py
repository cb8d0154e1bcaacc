"""Scores, softmax, values as torch's operations run them on the CPU (`trainer.attention.Core`)."""

from __future__ import annotations

from torchledger.formula.core import has_fused_kernel
from torchledger.formula.lifetimes.autograd import Gradients, begun, ended
from torchledger.formula.lifetimes.memory import Memory
from torchledger.formula.lifetimes.modules import Module
from torchledger.formula.lifetimes.operations import add, autocast, batched, dropped, plain, scale, softmax
from torchledger.formula.lifetimes.tensors import Tensor, made
from torchledger.formula.lifetimes.views import cast, expand, first, permute, reshape, unsqueezed


def core(module: Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Each query over the keys that it sees."""
    if module.recipe.attention == "math" or module.spec.attention.logit_soft_cap is not None:
        assert mask is not None
        return _math(module, query, key, value)
    batch, length, heads, _ = query.shape
    mixed = _of_heads(module, query, key, value, mask)
    return by_token(mixed, batch, length, heads)


def _of_heads(module: Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    groups = query.shape[2] // key.shape[2]
    operands = by_head(query, 1, flat=False), by_head(key, groups, flat=False), by_head(value, groups, flat=False)
    return _attended(module, *operands, mask)


def _attended(module: Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Scaled-dot-product attention as torch has it: under autocast in BF16, by the kernel that takes it."""
    mask = None if mask is None else autocast(mask)
    v, k, q = (autocast(each) for each in (value, key, query))
    if has_fused_kernel(module.spec):
        return _fused(q, k, v, mask)
    return _unfused(module, q, k, v, mask)


def _fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """The CPU's kernel (aten/src/ATen/native/cpu/FlashAttentionKernel.cpp), whose results lie by tokens."""
    node = begun((q, k, v), q, k, v, mask)
    batch, heads, length, _ = q.shape
    y = _by_tokens(q)
    sums = made(q.memory, (batch, length, heads), "fp32")

    def back(kept: list[Tensor | None], g: Gradients, __: list[Tensor]) -> Gradients:
        del g
        return [_by_tokens(each) for each in kept[:3] if each is not None]

    ended(node, back, y, sums, keeps=(y, sums))
    return y


def _by_tokens(x: Tensor) -> Tensor:
    """A new [b, h, t, d] that lies as [b, t, h, d]."""
    _, heads, length, size = x.shape
    return made(x.memory, x.shape, x.number_format, (length * heads * size, size, heads * size, 1))


def _unfused(module: Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Operation by operation, in FP32 (`_scaled_dot_product_attention_math` in .../transformers/attention.cpp).

    It gives the weights back too, in the format of the operands, and nobody wants them.
    """
    number_format = query.number_format
    query, key, value = (cast(each, "fp32") for each in (query, key, value))
    q = scale(query, keeps_number=False)
    if mask is None:
        mask = _causal(q.memory, q.shape[2])
    weights = add(_multiplied(q, scale(permute(key, 0, 1, 3, 2), keeps_number=False)), mask)
    weights = softmax(weights)
    if module.spec.attention.dropout:
        weights = dropped(weights)
    unwanted = cast(weights, number_format)
    mixed = cast(_multiplied(weights, value), number_format)
    del unwanted
    return mixed


def _causal(memory: Memory, length: int) -> Tensor:
    ones = made(memory, (length, length), "bool")
    lower = made(memory, (length, length), "bool")
    del ones
    numbers = [made(memory, (), "fp32") for _ in range(2)]
    mask = made(memory, (length, length), "fp32")
    del lower, numbers
    return mask


def _multiplied(a: Tensor, b: Tensor) -> Tensor:
    """A product of [b, h, i, k] and [b, h, k, j] as one batch (`at::matmul`)."""
    batch, heads, rows, inner = a.shape
    flat = reshape(a, batch * heads, rows, inner)
    other = reshape(b, batch * heads, inner, b.shape[3])
    return reshape(batched(flat, other), batch, heads, rows, b.shape[3])


def _math(module: Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    spec = module.spec
    batch, length, heads, _ = query.shape
    q = by_head(query, 1, flat=True)
    k = by_head(key, heads // key.shape[2], flat=True)
    v = by_head(value, heads // key.shape[2], flat=True)
    scores = _product(scale(q), permute(k, 0, 2, 1))
    if spec.attention.logit_soft_cap is not None:
        scores = scale(plain(scale(scores), keeps="result"))
    _add_in_place(scores, batch)
    weights = softmax(scores)
    if spec.attention.dropout:
        weights = dropped(weights)
    return by_token(_product(weights, v), batch, length, heads)


def _product(a: Tensor, b: Tensor) -> Tensor:
    b = autocast(b)
    a = autocast(a)
    return batched(a, b)


def by_head(x: Tensor, groups: int, *, flat: bool) -> Tensor:
    """[b, t, k, d] -> [b·k·groups, t, d], or [b, k·groups, t, d] where it is not flat."""
    batch, length, heads, size = x.shape
    y = permute(x, 0, 2, 1, 3)
    if groups != 1:
        y = expand(unsqueezed(y, 2), batch, heads, groups, length, size)
    shape = (batch * heads * groups, length, size) if flat else (batch, heads * groups, length, size)
    return reshape(y, *shape)


def by_token(x: Tensor, batch: int, length: int, heads: int) -> Tensor:
    """[b·h, t, d] or [b, h, t, d] -> [b, t, h·d]."""
    size = x.shape[-1]
    y = permute(reshape(x, batch, heads, length, size), 0, 2, 1, 3)
    return reshape(y, batch, length, heads * size)


def _add_in_place(scores: Tensor, batch: int) -> None:
    """A mask added to a view of the scores (`CopySlices` in torch/csrc/autograd/functions/tensor.cpp)."""
    node = begun((scores,))
    if node is None:
        return
    shape, sliced = scores.shape, (batch, scores.shape[0] // batch, *scores.shape[1:])

    def back(_: list[Tensor | None], g: Gradients, late: list[Tensor]) -> Gradients:
        result = made(first(g).memory, shape, first(g).number_format)
        late.append(made(first(g).memory, sliced, first(g).number_format))
        return [result]

    ended(node, back, scores)
