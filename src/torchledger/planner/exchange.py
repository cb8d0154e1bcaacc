"""`Exchange`: what the ranks that share a layer send each other for one micro-batch of one block.

Tensor parallelism adds up partial results twice a layer and pass (Shoeybi et al., arXiv:1909.08053, section 3); with
sequence parallelism each all-reduce is an all-gather and a reduce-scatter (Korthikanti et al., arXiv:2205.05198,
section 4.2.2). Context parallelism brings keys and values to the queries; expert parallelism tokens to their experts
and back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from torchledger.ledger import Phase
from torchledger.planner.shard import micro_batch_size
from torchledger.spec import ModelSpec, Recipe, Strategy

Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"]
Cause = Literal["tensor", "context", "expert", "expert tensor", "vocabulary"]

_AS_THE_STREAM: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Exchange:
    """One collective, or several equal ones.

    Attributes:
        module: where it belongs.
        op: which one.
        num_bytes: of the whole tensor: an all-gather's result, a reduce-scatter's or all-reduce's operand, one rank's
            buffer of an all-to-all, a send's payload.
        phase: when it runs.
        cause: which kind of parallelism asks for it.
        times: how many of them.
        num_chunks: pieces that it is cut into where it is hidden; the first shows all the same.
        copies: of an all-to-all to experts, how many copies of a token are in a rank's buffer, where an island gets one
            of them over the network and hands it on inside; 0: each copy travels by itself.
        is_hidden: it runs beside the computation of its block (a ring beside attention, Megatron's second gathering of
            the input beside the input gradient), and shows only where it is longer.
    """

    module: str
    op: Operation
    num_bytes: int
    phase: Phase
    cause: Cause
    times: int = 1
    num_chunks: int = 0
    is_hidden: bool = False
    copies: int = 0


def group_of(cause: Cause, strategy: Strategy) -> tuple[int, int]:
    """(ranks, distance between their numbers) of the group that exchanges.

    >>> group_of("context", Strategy(tensor_parallel=8, context_parallel=2))
    (2, 8)

    Ranks that split an expert lie next to each other, and then those of the other experts: where tensor parallelism
    splits none, all of a stage's ranks take part.

    >>> group_of("expert", Strategy(tensor_parallel=2, data_parallel=32, expert_parallel=64, expert_tensor_parallel=1))
    (64, 1)
    """
    if cause == "context":
        return strategy.context_parallel, strategy.tensor_parallel
    within = strategy.expert_tensor_parallel or strategy.tensor_parallel
    if cause == "expert":
        return strategy.expert_parallel, within
    if cause == "expert tensor":
        return within, 1
    return strategy.tensor_parallel, 1


def layer_exchanges(
    spec: ModelSpec,
    recipe: Recipe,
    strategy: Strategy,
    *,
    is_moe: bool,
    element_bytes: int,
    regathers: bool,
    routes_first: bool = False,
    sum_bytes: int | None = None,
    read_bytes: Mapping[str, int] = _AS_THE_STREAM,
    sums_apart: bool = False,
    dispatches_once: bool = False,
    hides_dispatch: bool = False,
) -> tuple[Exchange, ...]:
    """Of one layer.

    Args:
        spec: the whole model.
        recipe: the whole recipe.
        strategy: the layout.
        is_moe: whether the layer has experts.
        element_bytes: of the residual stream.
        regathers: with sequence parallelism, the backward pass gathers the layer's inputs again instead of keeping them
            whole.
        routes_first: with sequence parallelism, tokens go to their experts' ranks before the ranks that split an expert
            gather them; otherwise every one of those sends all of them.
        sum_bytes: of a partial result that matmuls give, which under autocast is narrower than the stream that it is
            added to; nothing is the stream's. A mixture's is weighted by its router's scores, and as wide as those.
        read_bytes: of what `attention` and `mlp` read, where that is not the stream's: an embedding that autocast
            projects enters in 16 bit.
        sums_apart: attention and MLP that read the same input gather it and add up their partial results each for
            itself, not together.
        dispatches_once: a token goes to an island once, however many of its experts are there.
        hides_dispatch: tokens travel to experts and back beside the computing of another micro-batch.
    """
    narrow = element_bytes if sum_bytes is None else sum_bytes
    sums = {"attention": narrow, "mlp": element_bytes if is_moe else narrow}
    # experts that are not cut exchange tokens instead
    gathers_later = routes_first and strategy.expert_parallel > 1 and strategy.sequence_parallel
    routed = is_moe and (strategy.expert_tensor_parallel == 1 or gathers_later)
    found = [
        *_tensor(
            spec if not sums_apart else replace(spec, parallel=False),
            recipe,
            strategy,
            is_routed=routed,
            formats={half: (read_bytes.get(half, element_bytes), size) for half, size in sums.items()},
            regathers=regathers,
        ),
        *_norms(spec, recipe, strategy),
        *_context(spec, recipe, strategy, element_bytes),
    ]
    if is_moe:
        routed = routed and strategy.sequence_parallel
        sent = _expert(spec, recipe, strategy, element_bytes, is_routed=routed, once=dispatches_once)
        hidden = (replace(each, is_hidden=True) if each.cause == "expert" else each for each in sent)
        found.extend(hidden if hides_dispatch else sent)
    return tuple(found)


def with_recompute(
    exchanges: tuple[Exchange, ...], recompute: str, *, without_last_sum: bool = False
) -> tuple[Exchange, ...]:
    """Full recompute runs the forward pass's exchanges again; selective those of the attention core.

    Args:
        exchanges: of one layer.
        recompute: `Recipe.recompute`.
        without_last_sum: the second run ends before the layer's last partial results are added up.
    """
    if recompute == "none":
        return exchanges
    again = [
        replace(each, phase="recompute")
        for each in exchanges
        if each.phase == "forward" and (recompute == "full" or each.cause == "context")
    ]
    if without_last_sum and recompute == "full":
        sums = [i for i, each in enumerate(again) if each.module in _HALVES and each.op in _SUMS]
        del again[slice(sums[-1], sums[-1] + 1) if sums else slice(0)]
    return (*exchanges, *again)


def stream_bytes(spec: ModelSpec, recipe: Recipe, strategy: Strategy, element_bytes: int) -> int:
    """Bytes of the residual stream [micro-batch, tokens of a context rank, hidden], undivided over tensor ranks."""
    return _tokens(recipe, strategy) * spec.hidden_size * element_bytes


def _tokens(recipe: Recipe, strategy: Strategy) -> int:
    """Of a micro-batch on one context parallel rank."""
    return micro_batch_size(recipe, strategy) * recipe.sequence_length // strategy.context_parallel


def _end_bytes(spec: ModelSpec, recipe: Recipe, strategy: Strategy, element_bytes: int) -> int:
    """Bytes of what an embedding gives and a head reads: as wide as the stream, or less where both are factored."""
    return _tokens(recipe, strategy) * (spec.embedding_size or spec.hidden_size) * element_bytes


def embedding_exchanges(
    spec: ModelSpec, recipe: Recipe, strategy: Strategy, element_bytes: int
) -> tuple[Exchange, ...]:
    """Of the embedding: every rank looks up its own rows, the sum is the stream (arXiv:1909.08053, section 3)."""
    if strategy.tensor_parallel == 1 or not strategy.vocab_parallel:
        return ()
    size = _end_bytes(spec, recipe, strategy, element_bytes)
    if strategy.sequence_parallel:
        return (
            Exchange("embedding", "reduce_scatter", size, "forward", "vocabulary"),
            Exchange("embedding", "all_gather", size, "backward", "vocabulary"),
        )
    return (Exchange("embedding", "all_reduce", size, "forward", "vocabulary"),)


def head_exchanges(spec: ModelSpec, recipe: Recipe, strategy: Strategy, element_bytes: int) -> tuple[Exchange, ...]:
    """Of head and loss: the stream to all ranks, and of each token a largest logit, a sum and the target's logit.

    `element_bytes` are those of what the head reads. A loss in pieces sends as much, so many tokens at a time.
    """
    if strategy.tensor_parallel == 1 or not strategy.vocab_parallel:
        return ()
    size, tokens = _end_bytes(spec, recipe, strategy, element_bytes), _tokens(recipe, strategy)
    chunk = min(recipe.loss_chunk or tokens, tokens)
    whole, rest = divmod(tokens, chunk)
    loss = [Exchange("", "all_reduce", 4 * chunk, "forward", "vocabulary", times=3 * whole)]
    if rest:
        loss.append(Exchange("", "all_reduce", 4 * rest, "forward", "vocabulary", times=3))
    if strategy.sequence_parallel:
        gather = Exchange("head", "all_gather", size, "forward", "vocabulary")
        return (gather, *loss, Exchange("head", "reduce_scatter", size, "backward", "vocabulary"))
    return (*loss, Exchange("head", "all_reduce", size, "backward", "vocabulary"))


_SPLIT_REDUCE: tuple[Operation, ...] = ("all_gather", "reduce_scatter")
#: What adds up partial results; inside of these, norms add up sums of squares.
_HALVES = frozenset({"layers.*.attention", "layers.*.mlp"})
_SUMS: tuple[Operation, ...] = ("all_reduce", "reduce_scatter")
_PHASES: tuple[Phase, ...] = ("forward", "backward")


def _tensor(
    spec: ModelSpec,
    recipe: Recipe,
    strategy: Strategy,
    *,
    is_routed: bool,
    formats: Mapping[str, tuple[int, int]],
    regathers: bool,
) -> Iterator[Exchange]:
    """`formats` are bytes of an element of what attention and MLP or mixture read, and of their partial results."""
    if strategy.tensor_parallel == 1:
        return
    # an expert that every token visits is cut as a layer without experts is
    shared = spec.moe is not None and spec.moe.shared_intermediate_size != 0
    halves = ["attention"] if spec.parallel or (is_routed and not shared) else ["attention", "mlp"]
    for half in halves:
        module = f"layers.*.{half}"
        size, partial = (stream_bytes(spec, recipe, strategy, each) for each in formats[half])
        if not strategy.sequence_parallel:
            yield Exchange(module, "all_reduce", partial, "forward", "tensor")
            yield Exchange(module, "all_reduce", size, "backward", "tensor")
            continue
        cut = strategy.tensor_parallel if strategy.overlap_tensor else 0
        for phase in _PHASES:
            for op in _SPLIT_REDUCE:
                is_sum = (op == "reduce_scatter") == (phase == "forward")  # or its gradient
                num_bytes = partial if is_sum else size
                yield Exchange(module, op, num_bytes, phase, "tensor", num_chunks=cut, is_hidden=cut > 0)
        if regathers:
            yield Exchange(module, "all_gather", size, "backward", "tensor", is_hidden=True)


def _norms(spec: ModelSpec, recipe: Recipe, strategy: Strategy) -> Iterator[Exchange]:
    """Norms over all heads, of which ranks have some: of each token a sum of squares in FP32, LayerNorm's a sum too."""
    if strategy.tensor_parallel == 1 or spec.attention.kind == "latent" or spec.attention.query_key_norm != "full":
        return
    number = 4 * _tokens(recipe, strategy)
    for name in ("query_norm", "key_norm"):
        for phase in _PHASES:
            times = 1 if spec.norm.kind == "rms" else 2
            yield Exchange(f"layers.*.attention.{name}", "all_reduce", number, phase, "tensor", times=times)


def _context(spec: ModelSpec, recipe: Recipe, strategy: Strategy, element_bytes: int) -> Iterator[Exchange]:
    ranks = strategy.context_parallel
    if ranks == 1:
        return
    tokens = micro_batch_size(recipe, strategy) * recipe.sequence_length // ranks
    heads = -(-spec.attention.num_heads // strategy.tensor_parallel)
    pairs = -(-spec.num_key_value_heads // strategy.tensor_parallel)
    key_value = tokens * pairs * (spec.head_size + spec.value_head_size) * element_bytes
    module = "layers.*.attention.core"
    if strategy.context_kind == "ring":
        yield Exchange(module, "send", key_value, "forward", "context", ranks - 1, is_hidden=True)
        yield Exchange(module, "send", 2 * key_value, "backward", "context", ranks - 1, is_hidden=True)
    elif strategy.context_kind == "all-gather":
        yield Exchange(module, "all_gather", ranks * key_value, "forward", "context")
        yield Exchange(module, "all_gather", ranks * key_value, "backward", "context")
        yield Exchange(module, "reduce_scatter", ranks * key_value, "backward", "context")
    else:
        query_output = tokens * heads * (spec.head_size + spec.value_head_size) * element_bytes
        for phase in _PHASES:
            yield Exchange(module, "all_to_all", key_value + query_output, phase, "context")


def _expert(
    spec: ModelSpec, recipe: Recipe, strategy: Strategy, element_bytes: int, *, is_routed: bool, once: bool
) -> Iterator[Exchange]:
    if strategy.expert_parallel == 1 or spec.moe is None:
        return
    size = stream_bytes(spec, recipe, strategy, element_bytes) * spec.moe.experts_per_token
    if is_routed:
        size //= strategy.tensor_parallel
    within, _ = group_of("expert tensor", strategy)
    copies = spec.moe.experts_per_token if once else 0
    for phase in _PHASES:
        yield Exchange("layers.*.mlp.experts", "all_to_all", size, phase, "expert", 2, copies=copies)
        if is_routed and within > 1:  # all ranks of an expert need what came to any of them
            for op in _SPLIT_REDUCE:
                yield Exchange("layers.*.mlp.experts", op, size * within, phase, "expert tensor")
