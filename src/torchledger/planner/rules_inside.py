"""Shape rules within a layer: what tensor, sequence and context parallelism divide, and formats that a chip runs."""

from __future__ import annotations

from collections.abc import Iterator

from torchledger.planner.refusal import Question, Refusal, nearest
from torchledger.spec import ModelSpec

#: Formats that a precision's matmuls run in.
_MULTIPLIED = {
    "fp32": "fp32",
    "bf16": "bf16",
    "bf16-master": "bf16",
    "bf16-moments": "bf16",
    "bf16-pure": "bf16",
    "fp16": "fp16",
    "fp16-master": "fp16",
    "tf32": "tf32",
    "fp8": "fp8",
    "mxfp8": "fp8",
    "nvfp4": "fp4",
}


def heads(question: Question) -> Iterator[Refusal]:
    """Query and key-value heads over tensor parallel ranks; fewer key-value heads than ranks are repeated."""
    spec, tensor = question.spec, question.strategy.tensor_parallel
    heads, shared = spec.attention.num_heads, spec.num_key_value_heads
    fields = frozenset({"tensor_parallel"})
    if heads % tensor:
        reason = f"tensor_parallel {tensor} does not divide {heads} attention heads"
        yield Refusal(reason, f"{nearest(heads, tensor)} do", fields)
    elif shared % tensor and tensor % shared:
        reason = f"tensor_parallel {tensor} neither divides {shared} key-value heads nor is a multiple of them"
        yield Refusal(reason, f"{nearest(shared, tensor)} divide them", fields)


def widths(question: Question) -> Iterator[Refusal]:
    """Inner widths of MLP and experts over tensor parallel ranks."""
    spec, strategy = question.spec, question.strategy
    tensor = strategy.tensor_parallel
    within = strategy.expert_tensor_parallel or tensor
    widths = [("the MLP's width", spec.mlp.intermediate_size, tensor, "tensor_parallel")]
    if spec.moe is not None:
        widths = widths if _has_dense_layers(spec) else []
        by = "expert_tensor_parallel" if strategy.expert_tensor_parallel else "tensor_parallel"
        widths.append(("the experts' width", spec.moe.intermediate_size, within, by))
        if spec.moe.shared_intermediate_size:
            shared = spec.moe.shared_intermediate_size
            widths.append(("the shared expert's width", shared, tensor, "tensor_parallel"))
    for what, width, ranks, name in widths:
        if width % ranks:
            reason = f"{name} {ranks} does not divide {what} {width}"
            fields = {"tensor_parallel", "expert_tensor_parallel"} if "experts" in what else {"tensor_parallel"}
            yield Refusal(reason, f"{nearest(width, ranks)} do", frozenset(fields))


def _has_dense_layers(spec: ModelSpec) -> bool:
    return spec.moe is None or spec.moe.num_leading_dense_layers > 0 or spec.moe.every > 1


def tokens(question: Question) -> Iterator[Refusal]:
    """Tokens of a sequence over context parallel ranks, and of a rank over sequence parallel ones."""
    recipe, strategy, rules = question.recipe, question.strategy, question.stack
    tokens, ranks = recipe.sequence_length, strategy.context_parallel
    if strategy.sequence_parallel and not rules.sequence_parallel:
        remedy = "leave sequence_parallel out or take another stack"
        fields = frozenset({"sequence_parallel", "stack"})
        yield Refusal(f"{rules.name} has no sequence parallelism", remedy, fields)
    kind = strategy.context_kind
    parts = ranks if ranks == 1 or kind == "ulysses" else 2 * ranks
    if ranks > 1 and tokens % parts:
        what = "the ranks" if kind == "ulysses" else "two pieces a rank (causal work is dealt out evenly)"
        remedy = f"a sequence_length that is a multiple of {parts}, such as {-(-tokens // parts) * parts}"
        fields = frozenset({"context_parallel", "context_kind"})
        yield Refusal(f"{tokens} tokens do not split over {what} of context_parallel {ranks}", remedy, fields)
    elif strategy.sequence_parallel and (tokens // ranks) % strategy.tensor_parallel:
        own, tensor = tokens // ranks, strategy.tensor_parallel
        fields = frozenset({"context_parallel", "tensor_parallel", "sequence_parallel"})
        reason = (
            f"sequence parallelism splits a rank's {own} tokens over tensor_parallel {tensor}, which does not divide"
        )
        yield Refusal(reason, f"{nearest(own, tensor)} do", fields)


def context(question: Question) -> Iterator[Refusal]:
    """Kinds of context parallelism that the stack has, and the heads that `ulysses` splits."""
    spec, strategy, rules = question.spec, question.strategy, question.stack
    ranks, tensor, kind = strategy.context_parallel, strategy.tensor_parallel, strategy.context_kind
    if ranks == 1:
        return
    if kind not in rules.context_kinds:
        has = ", ".join(rules.context_kinds) or "none"
        fields = frozenset({"context_parallel", "context_kind", "stack"})
        yield Refusal(f"{rules.name} has no context parallelism by {kind}", f"it has: {has}", fields)
        return
    if "math" in {question.recipe.attention, rules.attention}:
        reason = f"context_parallel {ranks} needs fused attention, and math writes scores to memory"
        yield Refusal(reason, "attention fused, or context_parallel 1", frozenset({"context_parallel", "stack"}))
    if kind != "ulysses":
        return
    fields = frozenset({"context_parallel", "context_kind", "tensor_parallel"})
    own = spec.attention.num_heads // tensor
    shared = max(1, spec.num_key_value_heads // tensor)
    if own % ranks:
        reason = f"ulysses splits {own} heads of a tensor parallel rank over context_parallel {ranks}"
        yield Refusal(reason, f"{nearest(own, ranks)} divide them", fields)
    elif shared % ranks and ranks % shared:
        reason = f"ulysses splits {shared} key-value heads of a tensor parallel rank over context_parallel {ranks}"
        yield Refusal(reason, f"{nearest(shared, ranks)} divide them", fields)


def tensor(question: Question) -> Iterator[Refusal]:
    """Whether the stack has tensor parallelism."""
    rules, tensor = question.stack, question.strategy.tensor_parallel
    if tensor > 1 and not rules.tensor_parallel:
        fields = frozenset({"tensor_parallel", "stack"})
        yield Refusal(f"{rules.name} has no tensor parallelism", "tensor_parallel 1 or another stack", fields)


def formats(question: Question) -> Iterator[Refusal]:
    """Whether the chip runs the precision's matmuls."""
    precision, chip = question.recipe.precision, question.cluster.chip
    needed = _MULTIPLIED.get(precision)
    if needed is None:
        return
    runs = [each.number_format for each in chip.peaks]
    if needed not in runs:
        why = "cannot run" if needed in chip.lacks else "is not known to run"
        reason = f"precision {precision} needs {needed}, which {chip.name} {why}"
        yield Refusal(reason, f"it runs {', '.join(runs)}", frozenset({"precision"}))


__all__ = ["context", "formats", "heads", "tensor", "tokens", "widths"]
