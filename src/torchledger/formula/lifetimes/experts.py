"""A mixture of experts as the trainer's allocates (`trainer.moe`), its loads as even as whole tokens allow."""

from __future__ import annotations

import math
from dataclasses import replace

from torchledger.formula.lifetimes.autograd import Gradients, begun, ended
from torchledger.formula.lifetimes.feeding import mlp
from torchledger.formula.lifetimes.modules import Module
from torchledger.formula.lifetimes.operations import add, divided, like, linear, mean, mul, plain, softmax, total
from torchledger.formula.lifetimes.tensors import Tensor, made
from torchledger.formula.lifetimes.views import cast, first, joined, reshape, split
from torchledger.spec import MoeSpec


def mixture(module: Module, x: Tensor) -> tuple[Tensor, ...]:
    """Routed experts and those that every token visits; and how uneven the choice is, where the router tells."""
    moe = module.spec.moe
    assert moe is not None
    batch, length, width = x.shape
    tokens = reshape(x, batch * length, width)
    weights, chosen, uneven = _routed(module.inside("router"), tokens, moe)
    memory, copies = module.memory, tokens.shape[0] * moe.experts_per_token
    memory.place = module.path
    order = _sorted(chosen, copies)
    if moe.capacity_factor:
        sources, loads, rows, fits = _within_capacity(order, moe, copies)
        weights = _cut(weights, fits)
    else:
        sources, rows = made(memory, (copies,), "int64"), _sorted(order, copies)
        loads = _even(copies, moe.num_experts)
    slices = split(_selected(tokens, sources), *loads, dim=0)
    expert = replace(module.spec.mlp, intermediate_size=moe.intermediate_size)
    outputs = joined(*(mlp(module.inside(f"experts.{n}"), part, expert) for n, part in enumerate(slices)), dim=0)
    memory.place = module.path
    outputs = _selected(outputs, rows)
    weights = cast(weights, module.weights.number_format)
    routed = mul(reshape(outputs, -(-copies // moe.experts_per_token), moe.experts_per_token, width), _column(weights))
    mixed = _summed(routed)
    if moe.shared_intermediate_size:
        shared = replace(module.spec.mlp, intermediate_size=moe.shared_intermediate_size)
        always = mlp(module.inside("shared"), tokens, shared)
        if moe.shared_gate:
            always = mul(always, plain(module.linear("shared_gate", tokens, 1, inner=False), keeps="result"))
        mixed = add(mixed, always)
    out = reshape(mixed, batch, length, width)
    return (out,) if uneven is None else (out, uneven)


def _routed(module: Module, x: Tensor, moe: MoeSpec) -> tuple[Tensor, Tensor, Tensor | None]:
    memory, rows, chosen_number = module.memory, x.shape[0], moe.experts_per_token
    memory.place = module.path
    logits = cast(linear(x, module.parameter("weight", moe.num_experts, x.shape[1])), "fp32")
    scores = softmax(logits) if moe.scoring == "softmax" else plain(logits, keeps="result")
    preferred = scores.detached() if not moe.router_bias else made(memory, scores.shape, "fp32")
    values = made(memory, (rows, chosen_number), "fp32")
    chosen = made(memory, (rows, chosen_number), "int64")
    del values
    weights = _gathered(scores, chosen)
    if moe.normalize_weights:
        weights = divided(weights, _row_sum(weights))
    uneven = _unevenness(scores, moe, rows * chosen_number) if module.recipe.load_balance else None
    del logits, preferred  # not before
    return weights, chosen, uneven


def _unevenness(scores: Tensor, moe: MoeSpec, copies: int) -> Tensor:
    memory = scores.memory
    if moe.scoring == "sigmoid":
        scores = divided(scores, _row_sum(scores))
    counts = made(memory, (moe.num_experts,), "fp32")
    ones = made(memory, (copies,), "fp32")
    del ones
    shares = like(counts)
    return total(mul(mean(scores, of_rows=True), shares))


def _gathered(x: Tensor, index: Tensor) -> Tensor:
    node, before = begun((x,), index), x.shape
    y = made(x.memory, index.shape, x.number_format)
    ended(node, lambda _, g, __: [made(first(g).memory, before, first(g).number_format)], y)
    return y


def _row_sum(x: Tensor) -> Tensor:
    """Over the last dimension, which stays with size 1; the gradient is repeated."""
    node, before = begun((x,)), x.shape
    y = made(x.memory, (*before[:-1], 1), x.number_format)
    ended(node, lambda _, g, __: [first(g).viewed(before, (*first(g).strides[:-1], 0))], y)
    return y


def _summed(x: Tensor) -> Tensor:
    """Over the middle of three dimensions; the gradient is repeated."""
    node, before = begun((x,)), x.shape
    y = made(x.memory, (before[0], before[2]), x.number_format)

    def back(_: list[Tensor | None], g: Gradients, __: list[Tensor]) -> Gradients:
        return [first(g).viewed(before, (first(g).strides[0], 0, first(g).strides[1]))]

    ended(node, back, y)
    return y


def _column(x: Tensor) -> Tensor:
    return reshape(x, *x.shape, 1)


def _sorted(x: Tensor, count: int) -> Tensor:
    values, order = made(x.memory, (count,), x.number_format), made(x.memory, (count,), "int64")
    del values
    return order


def _selected(x: Tensor, index: Tensor) -> Tensor:
    """Rows by an index, which is kept."""
    node, before = begun((x,), index), x.shape
    y = made(x.memory, (index.shape[0], x.shape[1]), x.number_format)
    ended(node, lambda _, g, __: [made(first(g).memory, before, first(g).number_format)], y)
    return y


def _even(copies: int, experts: int) -> list[int]:
    each, rest = divmod(copies, experts)
    return [each + (number < rest) for number in range(experts)]


def _within_capacity(order: Tensor, moe: MoeSpec, copies: int) -> tuple[Tensor, list[int], Tensor, Tensor]:
    """Token of each row of each expert, rows of each, row of each copy, and whether it got one."""
    memory, experts = order.memory, moe.num_experts
    capacity = math.ceil(moe.capacity_factor * copies / experts)

    def whole(*shape: int) -> Tensor:
        return made(memory, shape, "int64")

    counts, ones = whole(experts), whole(copies)
    del ones
    summed = whole(experts)
    starts = whole(experts)
    del summed
    row, sums = whole(capacity), whole(experts, capacity)
    at = whole(experts, capacity)
    del sums
    is_taken = made(memory, (experts, capacity), "bool")
    found = whole(experts * capacity)
    sources = whole(experts * capacity)
    del found
    opposite = made(memory, is_taken.shape, "bool")
    del opposite
    places = _sorted(order, copies)
    begins = whole(copies)
    queued = whole(copies)
    del places, begins
    fits = made(memory, (copies,), "bool")
    scaled = whole(copies)
    rows = whole(copies)
    del scaled
    opposite = made(memory, (copies,), "bool")
    del opposite, counts, starts, row, at, queued
    return sources, [capacity] * experts, rows, reshape(fits, copies // moe.experts_per_token, moe.experts_per_token)


def _cut(weights: Tensor, fits: Tensor) -> Tensor:
    """The weights of copies that found their expert full set to zero; the mask is kept."""
    mask = made(weights.memory, fits.shape, "bool")
    node = begun((weights,), mask)
    y = like(weights)
    ended(node, lambda _, g, __: [like(first(g))], y)
    return y
