"""A mixture of experts in place of the MLP, walked on the tape: router, copies of tokens, experts, their sum."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeAlias

from torchledger import ops
from torchledger.formula.dense import linear
from torchledger.formula.mlp import mlp
from torchledger.formula.pointwise import add, multiplied, sigmoid, softmax
from torchledger.formula.tape import Tape
from torchledger.formula.value import Value
from torchledger.ledger import Amount
from torchledger.spec import MlpSpec, MoeSpec

Loads: TypeAlias = list[tuple[Amount, Amount]]

UNIFORM_ROUTING = (
    "mixture of experts: every expert receives the same number of token copies (uniform top-k routing), none dropped"
)
CAPACITY_ROUTING = "mixture of experts: every expert computes its capacity, padded or cut to it"


def mixture(tape: Tape, x: Value, spec: MlpSpec, moe: MoeSpec, *, balances: bool = False) -> Value:
    """Routed experts and those that every token visits (DeepSeekMoE, arXiv:2401.06066, equations 9 to 11).

    With `balances` a load-balancing loss is made of the router's scores.
    """
    tape.assumptions.append(CAPACITY_ROUTING if moe.capacity_factor else UNIFORM_ROUTING)
    B, T, D = x.shape
    tokens = replace(x, shape=(B * T, D), strides=(D, 1))
    readers = 2 + (moe.shared_intermediate_size != 0) * (1 + moe.shared_gate)
    with tape.inside("mlp"):
        tape.fan_out("", tokens, readers)
        weights = _routed(tape, tokens, moe, balances=balances)
        rows = B * T * moe.experts_per_token
        loads = _loads(rows, moe)
        copies = _selected(tape, "token copies", tokens, sum(load * count for load, count in loads))
        outputs = _experts(tape, copies, loads, replace(spec, intermediate_size=moe.intermediate_size))
        outputs = _selected(tape, "expert outputs by token", outputs, rows)
        if moe.capacity_factor:
            weights = _cut(tape, weights)
        if not tape.formats.is_autocast:
            weights = tape.cast("", "weights in the stream's format", weights, outputs.number_format)
        weighted = multiplied(tape, "", outputs, weights, "weighted outputs")
        mixed = _summed(tape, weighted, B * T, moe.experts_per_token)
        if moe.shared_intermediate_size != 0:
            shared = mlp(tape, "shared", tokens, replace(spec, intermediate_size=moe.shared_intermediate_size))
            if moe.shared_gate:
                gate = sigmoid(tape, "", linear(tape, "shared_gate", tokens, 1), "shared gate")
                shared = multiplied(tape, "", shared, gate, "gated shared output")
            mixed = add(tape, "", mixed, shared, "output")
    return replace(mixed, shape=(B, T, D), strides=(T * D, D, 1))


def _routed(tape: Tape, tokens: Value, moe: MoeSpec, *, balances: bool) -> Value:
    """Weights of the chosen experts [N, k]: scores in FP32, the k largest of a row, maybe scaled to sum to one."""
    N, E, k = tokens.shape[0], moe.num_experts, moe.experts_per_token
    with tape.inside("router"):
        logits = tape.cast("", "logits in FP32", linear(tape, "", tokens, E), "fp32")
        scoring = softmax if moe.scoring == "softmax" else sigmoid
        scores = scoring(tape, "", logits, "scores")
        if balances:
            tape.fan_out("", scores, 2)
            _balanced(tape, scores, moe)
        chosen = tape.make("chosen experts", (N, k), "int64", requires_grad=False)
        tape.op("", "topk", ops.topk(N, E, k), chosen, reads=(), holds=(scores,), number_format="fp32")
        weights = tape.make("chosen weights", (N, k), "fp32")
        weights = tape.op(
            "",
            "gather",
            ops.gather(N * k, 1),
            weights,
            reads=(scores,),
            backward=ops.scatter_add(N * k, 1),
            keeps=(chosen,),
        )
        if not moe.normalize_weights:
            return weights
        total = tape.make("sum of weights", (N, 1), "fp32")
        total = tape.op("", "sum", ops.reduction("sum", N, k), total, reads=(weights,))
        normalized = tape.make("normalized weights", (N, k), "fp32")
        return tape.op(
            "",
            "div",
            ops.pointwise("div", N * k),
            normalized,
            reads=(weights, total),
            backward=ops.pointwise_backward("div", N * k, num_gradients=2),
            keeps=(weights, total),
        )


def _balanced(tape: Tape, scores: Value, moe: MoeSpec) -> None:
    """E·Σ f·P: shares of the choices, which are kept, times mean scores (Switch, arXiv:2101.03961, equation 4).

    Sigmoid scores are divided by their sum first.
    """
    N, E, k = scores.shape[0], moe.num_experts, moe.experts_per_token
    if moe.scoring == "sigmoid":
        total = tape.make("sum of scores", (N, 1), "fp32")
        total = tape.op("", "sum", ops.reduction("sum", N, E), total, reads=(scores,))
        quotients = tape.make("probabilities", (N, E), "fp32")
        back = ops.pointwise_backward("div", N * E, num_gradients=2)
        scores = tape.op(
            "",
            "div",
            ops.pointwise("div", N * E),
            quotients,
            reads=(scores, total),
            backward=back,
            keeps=(scores, total),
        )
    shares = tape.make("shares of the choices", (E,), "fp32", requires_grad=False)
    tape.op("", "index_add", ops.scatter_add(N * k, 1), shares, reads=())
    mean = tape.make("mean probabilities", (E,), "fp32")
    mean = tape.op("", "mean", ops.reduction("mean", E, N), mean, reads=(scores,))
    product = tape.make("share · probability", (E,), "fp32")
    back = ops.pointwise_backward("mul", E)
    product = tape.op("", "mul", ops.pointwise("mul", E), product, reads=(mean,), backward=back, keeps=(shares,))
    unevenness = tape.make("unevenness", (), "fp32")
    unevenness = tape.op("", "sum", ops.reduction("sum", 1, E), unevenness, reads=(product,))
    tape.balances = bool(tape.balances) or unevenness.requires_grad


def _selected(tape: Tape, name: str, x: Value, rows: Amount) -> Value:
    """Rows picked by an index of its own, which is kept."""
    index = tape.make(f"{name}: index", (rows,), "int64", requires_grad=False)
    y = tape.make(name, (rows, x.shape[-1]), x.number_format)
    tape.op("", "", ops.sort_indices(rows), index, reads=())
    return tape.op(
        "",
        "index_select",
        ops.gather(rows, x.shape[-1], element_bytes=x.element_bytes),
        y,
        reads=(x,),
        backward=ops.scatter_add(rows, x.shape[-1], element_bytes=x.element_bytes),
        keeps=(index,),
    )


def _cut(tape: Tape, weights: Value) -> Value:
    """The weights of copies that found their expert full set to zero. Keeps which those are."""
    n = weights.num_elements
    full = tape.make("copies beyond capacity", weights.shape, "bool", requires_grad=False)
    tape.op("", "", ops.pointwise("compare", n, element_bytes=8, output_element_bytes=1), full, reads=())
    y = tape.make("weights within capacity", weights.shape, weights.number_format)
    pieces = ops.pointwise("masked_fill", n, element_bytes=weights.element_bytes)
    return tape.op("", "masked_fill", pieces, y, reads=(weights,), backward=pieces, keeps=(full,))


def _summed(tape: Tape, x: Value, tokens: Amount, parts: Amount) -> Value:
    """The sum of each token's `parts` rows."""
    y = tape.make("mixed", (tokens, x.shape[1]), x.number_format)
    pieces = ops.reduction("sum", y.num_elements, parts, element_bytes=x.element_bytes)
    return tape.op("", "sum", pieces, y, reads=(x,), passes=1)


def _experts(tape: Tape, copies: Value, loads: Loads, expert: MlpSpec) -> Value:
    """Each expert on its own rows: one after the other, or as one grouped matmul where experts have one load.

    The results stand one below the other, which one after the other takes a copy of.
    """
    D = copies.shape[-1]
    grouped = tape.kernels.name not in {"cpu", "cuda"}
    results = []
    for load, count in loads:
        with tape.inside("experts.*", count, grouped=grouped):
            results.append(mlp(tape, "", replace(copies, shape=(load, D)), expert))
    outputs = tape.make("expert outputs", copies.shape, tape.matmul_format(copies))
    if grouped:
        return tape.op("", "", (), outputs, reads=tuple(results), passes=len(results))
    joined = ops.copy(outputs.num_elements, element_bytes=outputs.element_bytes, op="concatenate")
    return tape.op("", "", joined, outputs, reads=tuple(results), backward=joined)


def _loads(copies: Amount, moe: MoeSpec) -> Loads:
    """(token copies, number of experts that receive so many), as even as whole tokens allow, or as their capacity.

    >>> _loads(10, MoeSpec(4, 1, 8)), _loads(10, MoeSpec(4, 1, 8, capacity_factor=1.5))  # 1.5·10/4 is 3.75, 4 rows
    ([(3, 2), (2, 2)], [(4, 4)])
    """
    experts = moe.num_experts
    if moe.capacity_factor:
        return [(math.ceil(moe.capacity_factor * copies / experts), experts)]
    if not isinstance(copies, int) or not isinstance(experts, int):
        return [(copies / experts, experts)]
    each, rest = divmod(copies, experts)
    return [(load, count) for load, count in ((each + 1, rest), (each, experts - rest)) if count]
