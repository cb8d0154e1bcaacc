"""The feed-forward part of a layer, dense or a mixture of experts, walked on the tape."""

from __future__ import annotations

from dataclasses import replace

from torchledger import ops
from torchledger.formula.dense import linear
from torchledger.formula.pointwise import activation, add, multiplied, sigmoid, softmax
from torchledger.formula.tape import Tape, Value
from torchledger.ledger import Amount
from torchledger.spec import MlpSpec, MoeSpec

UNIFORM_ROUTING = (
    "mixture of experts: every expert receives the same number of token copies (uniform top-k routing), none dropped"
)


def mlp(tape: Tape, path: str, x: Value, spec: MlpSpec) -> Value:
    """down(activation(up(x))), or gated down(activation(gate(x)) · up(x)) (Shazeer, arXiv:2002.05202, equation 5)."""
    F, D = spec.intermediate_size, x.shape[-1]
    with tape.inside(path):
        if spec.kind == "gated":
            tape.fan_out("", x, 2)
            gate = activation(tape, "", linear(tape, "gate", x, F, bias=spec.up_bias), spec.activation)
            inner = multiplied(tape, "", gate, linear(tape, "up", x, F, bias=spec.up_bias), "gate · up")
        else:
            inner = activation(tape, "", linear(tape, "up", x, F, bias=spec.up_bias), spec.activation)
        return linear(tape, "down", inner, D, bias=spec.down_bias)


def mixture(tape: Tape, x: Value, spec: MlpSpec, moe: MoeSpec) -> Value:
    """Routed experts and those that every token visits (DeepSeekMoE, arXiv:2401.06066, equations 9 to 11)."""
    tape.assumptions.append(UNIFORM_ROUTING)
    B, T, D = x.shape
    tokens = replace(x, shape=(B * T, D), strides=(D, 1))
    readers = 2 + (moe.shared_intermediate_size != 0) * (1 + moe.shared_gate)
    with tape.inside("mlp"):
        tape.fan_out("", tokens, readers)
        weights = _routed(tape, tokens, moe)
        copies = _selected(tape, "token copies", tokens, B * T * moe.experts_per_token)
        expert = replace(spec, intermediate_size=moe.intermediate_size)
        for load, count in _loads(copies.shape[0], moe.num_experts):
            with tape.inside("experts.*", count):
                mlp(tape, "", replace(copies, shape=(load, D)), expert)
        outputs = tape.make("expert outputs", copies.shape, tape.matmul_format(copies))
        joined = ops.copy(outputs.num_elements, element_bytes=outputs.element_bytes, op="concatenate")
        tape.run("", joined, outputs.number_format, outputs)
        tape.then("", joined, outputs.number_format)
        outputs = _selected(tape, "expert outputs by token", outputs, copies.shape[0])
        weighted = multiplied(tape, "", outputs, weights, "weighted outputs")
        mixed = _summed(tape, weighted, B * T, moe.experts_per_token)
        if moe.shared_intermediate_size != 0:
            shared = mlp(tape, "shared", tokens, replace(spec, intermediate_size=moe.shared_intermediate_size))
            if moe.shared_gate:
                gate = sigmoid(tape, "", linear(tape, "shared_gate", tokens, 1), "shared gate")
                shared = multiplied(tape, "", shared, gate, "gated shared output")
            mixed = add(tape, "", mixed, shared, "output")
    return replace(mixed, shape=(B, T, D), strides=(T * D, D, 1))


def _routed(tape: Tape, tokens: Value, moe: MoeSpec) -> Value:
    """Weights of the chosen experts [N, k]: scores in FP32, the k largest of a row, maybe scaled to sum to one."""
    N, E, k = tokens.shape[0], moe.num_experts, moe.experts_per_token
    with tape.inside("router"):
        logits = tape.cast("", "logits in FP32", linear(tape, "", tokens, E), "fp32")
        scoring = softmax if moe.scoring == "softmax" else sigmoid
        scoring(tape, "", logits, "scores")
        chosen = tape.make("chosen experts", (N, k), "int64", requires_grad=False)
        tape.run("", ops.topk(N, E, k), "fp32", chosen)
        weights = tape.make("chosen weights", (N, k), "fp32")
        tape.save("gather", chosen)
        tape.run("", ops.gather(N * k, 1), "fp32", weights)
        tape.then("", ops.scatter_add(N * k, 1), "fp32")
        if not moe.normalize_weights:
            return weights
        total = tape.make("sum of weights", (N, 1), "fp32")
        tape.run("", ops.reduction("sum", N, k), "fp32", total)
        tape.save("div", weights, total)
        normalized = tape.make("normalized weights", (N, k), "fp32")
        tape.run("", ops.pointwise("div", N * k), "fp32", normalized)
        tape.then("", ops.pointwise_backward("div", N * k, num_gradients=2), "fp32")
        return normalized


def _selected(tape: Tape, name: str, x: Value, rows: Amount) -> Value:
    """Rows picked by an index of its own, which is kept."""
    index = tape.make(f"{name}: index", (rows,), "int64", requires_grad=False)
    y = tape.make(name, (rows, x.shape[-1]), x.number_format)
    tape.run("", ops.sort_indices(rows), "int64", index)
    tape.save("index_select", index)
    tape.run("", ops.gather(rows, x.shape[-1], element_bytes=x.element_bytes), x.number_format, y)
    tape.then("", ops.scatter_add(rows, x.shape[-1], element_bytes=x.element_bytes), x.number_format)
    return y


def _summed(tape: Tape, x: Value, tokens: Amount, parts: Amount) -> Value:
    """The sum of each token's `parts` rows."""
    y = tape.make("mixed", (tokens, x.shape[1]), x.number_format)
    tape.run("", ops.reduction("sum", y.num_elements, parts, element_bytes=x.element_bytes), x.number_format, y)
    return y


def _loads(copies: Amount, experts: Amount) -> list[tuple[Amount, Amount]]:
    """(token copies, number of experts that receive so many), as even as whole tokens allow.

    >>> _loads(10, 4)
    [(3, 2), (2, 2)]
    """
    if not isinstance(copies, int) or not isinstance(experts, int):
        return [(copies / experts, experts)]
    each, rest = divmod(copies, experts)
    return [(load, count) for load, count in ((each + 1, rest), (each, experts - rest)) if count]
