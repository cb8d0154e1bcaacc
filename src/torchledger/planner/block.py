"""`pieces`: a model's parts as one rank runs them on one micro-batch, from the formula on the sharded question.

What a sharded spec cannot say is done to its lines: sequence parallelism divides what norms, dropout and residual
additions compute and keep; the queries of a context parallel rank see the keys of the whole sequence; a router scores
all experts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

from torchledger.formula import KERNELS, Activation, Kernels, Part, parts
from torchledger.formula.optimizer import trained
from torchledger.ledger import Line, Work
from torchledger.planner.exchange import (
    Exchange,
    embedding_exchanges,
    head_exchanges,
    layer_exchanges,
    with_recompute,
)
from torchledger.planner.shard import sharded_recipe, sharded_spec
from torchledger.planner.stack import Stack
from torchledger.planner.stage import Block
from torchledger.spec import ModelSpec, Recipe, Strategy
from torchledger.spec.recipe import Precision

#: Precisions whose residual stream has four bytes an element, unless the stack casts whole layers.
_WIDE = frozenset({"fp32", "tf32", "bf16", "fp16"})


@dataclass(frozen=True, slots=True)
class Piece:
    """A block and what its ranks send each other for one micro-batch.

    Attributes:
        block: the block.
        exchanges: the collectives, of all phases.
        num_layers: how many such layers the model has.
        first_layer: index of the first of them; -1 for what is no layer.
    """

    block: Block
    exchanges: tuple[Exchange, ...]
    num_layers: int
    first_layer: int


def stream_format(recipe: Recipe, stack: Stack) -> str:
    """Format of the residual stream.

    >>> from torchledger.planner.stack import stack
    >>> [stream_format(Recipe(precision="bf16"), stack(name)) for name in ("torchledger", "fsdp2")]
    ['fp32', 'bf16']
    """
    precision = meant_precision(recipe, stack)
    if precision in _WIDE:
        return "fp32"
    return "fp16" if precision.startswith("fp16") else "bf16"


def stream_bytes_of(recipe: Recipe, stack: Stack) -> int:
    """Bytes of an element of the residual stream."""
    return 4 if stream_format(recipe, stack) == "fp32" else 2


def meant_precision(recipe: Recipe, stack: Stack) -> Precision:
    """The precision that the formula is asked for: what the stack means, and whole layers cast where it casts them."""
    precision = stack.precision(recipe.precision)
    if stack.mixed_policy:  # layers are cast whole: no casts inside
        precision = {"bf16": "bf16-master", "fp16": "fp16-master"}.get(precision, precision)
    return cast("Precision", precision)


def formula_recipe(recipe: Recipe, strategy: Strategy, stack: Stack) -> Recipe:
    """The recipe that the formula is asked: one micro-batch of one rank, in the stack's own way of mixed precision."""
    asked = sharded_recipe(recipe, strategy)
    is_math = recipe.attention == "math" or stack.attention == "math"
    return replace(asked, precision=meant_precision(recipe, stack), attention="math" if is_math else "fused")


def pieces(spec: ModelSpec, recipe: Recipe, strategy: Strategy, stack: Stack) -> tuple[Piece, ...]:
    """Embedding, one layer of each kind, head, as one rank of the layout runs them."""
    shard = sharded_spec(spec, strategy, stack)
    asked = formula_recipe(recipe, strategy, stack)
    stream = stream_bytes_of(recipe, stack)
    found = []
    for part in parts(shard, asked, kernels=kernels_of_stack(stack)):
        exchanges = exchanges_of(part, spec, recipe, strategy, stack)
        found.append(
            Piece(
                _block(part, spec, asked, strategy, stack, shard=shard, stream=stream),
                exchanges,
                part.times,
                -1 if part.layer is None else part.layer.first,
            )
        )
    return tuple(found)


@lru_cache(maxsize=64)
def kernels_of_stack(stack: Stack) -> Kernels:
    """The stack's kernel set, with what the stack means by selective recompute."""
    kernels = KERNELS[stack.kernels]
    return replace(kernels, selective=stack.selective, loss=stack.loss or kernels.loss)


def exchanges_of(part: Part, spec: ModelSpec, recipe: Recipe, strategy: Strategy, stack: Stack) -> tuple[Exchange, ...]:
    """What the ranks that share a part send each other for one micro-batch, recompute included."""
    element_bytes = stream_bytes_of(recipe, stack)
    if part.kind == "embedding":
        return embedding_exchanges(spec, recipe, strategy, element_bytes)
    if part.kind == "head":
        return head_exchanges(spec, recipe, strategy, element_bytes)
    is_moe = part.layer is not None and part.layer.is_moe
    once = layer_exchanges(
        spec, recipe, strategy, is_moe=is_moe, element_bytes=element_bytes, regathers=stack.regathers_inputs
    )
    return with_recompute(once, recipe.recompute)


def _block(
    part: Part, spec: ModelSpec, recipe: Recipe, strategy: Strategy, stack: Stack, *, shard: ModelSpec, stream: int
) -> Block:
    dense = [each for each in part.parameters if each.tied_to is None and ".experts." not in each.name]
    experts = [each for each in part.parameters if each.tied_to is None and ".experts." in each.name]
    kept = tuple(_activation(each, spec, strategy, stack) for each in part.activations)
    tokens = recipe.batch_size * recipe.sequence_length
    divided = strategy.tensor_parallel if strategy.sequence_parallel else 1
    return Block(
        name=part.name,
        kind=part.kind,
        lines=tuple(_line(each, spec, shard, strategy) for each in part.lines),
        num_parameters=sum(each.total for each in dense),
        num_expert_parameters=sum(each.total for each in experts),
        num_trainable=sum(each.total for each in trained(dense)),
        num_trainable_expert=sum(each.total for each in trained(experts)),
        num_tensors=sum(each.times for each in (*dense, *experts)),
        largest_tensor=max((each.total // each.times for each in (*dense, *experts)), default=0),
        activations=kept,
        kept_bytes=sum(each.total_bytes for each in kept),
        recomputed_bytes=sum(_activation(each, spec, strategy, stack).total_bytes for each in part.recomputed),
        forward_temporary_bytes=part.forward_temporary_bytes,
        backward_temporary_bytes=part.backward_temporary_bytes,
        output_bytes=-(-tokens * spec.hidden_size * stream // divided),
    )


def _line(line: Line, spec: ModelSpec, shard: ModelSpec, strategy: Strategy) -> Line:
    """A line of the sharded spec as the rank runs it."""
    if strategy.context_parallel > 1 and ".core" in line.module:
        line = _with_all_keys(line, strategy)
    if (
        strategy.expert_parallel > 1
        and line.module.endswith("router")
        and spec.moe is not None
        and shard.moe is not None
    ):
        line = replace(line, work=_scaled(line.work, spec.moe.num_experts, shard.moe.num_experts))
    if strategy.sequence_parallel and strategy.tensor_parallel > 1 and _is_between(line.module):
        line = replace(line, work=_scaled(line.work, 1, strategy.tensor_parallel))
    return line


def _with_all_keys(line: Line, strategy: Strategy) -> Line:
    """Queries of one rank, keys of all: as many times the pairs as there are ranks.

    Evenly, for causal masks too: a rank has an early and a late piece of the sequence (arXiv:2407.21783, 3.3.2).
    """
    ranks = strategy.context_parallel
    names = {"keys": ranks, "columns": ranks, "n": ranks}
    shape = tuple((name, size * names.get(name, 1)) for name, size in line.shape)
    work = line.work
    pairs = {
        name: getattr(work, name) * ranks
        for name in ("flops_full", "flops_exact", "flops_executed", "transcendentals")
        if getattr(work, name) is not None
    }
    return replace(line, shape=shape if line.kind == "attention" else line.shape, work=replace(work, **pairs))


#: Modules that stand for every layer.
_LAYERS = frozenset({"layers.*", "prediction.*"})


def _is_between(name: str) -> bool:
    """Whether tensor parallelism leaves it whole: norms, residual additions, dropout, the embedding's output.

    >>> [_is_between(each) for each in ("layers.*.mlp_norm", "layers.*", "layers.*.attention.query_norm", "head")]
    [True, True, False, False]
    """
    if ".attention." in name or ".mlp." in name:
        return False
    last = name.rpartition(".")[2]
    return name in _LAYERS or "norm" in last or name.startswith(("embedding", "position_embedding"))


def _activation(activation: Activation, spec: ModelSpec, strategy: Strategy, stack: Stack) -> Activation:
    if not strategy.sequence_parallel or strategy.tensor_parallel == 1:
        return activation
    module, _, what = activation.name.partition(":")
    place, _, last = module.rpartition(".")
    is_stream = place in _LAYERS and last.removesuffix(" dropout mask") in {"input", "sum", "output"}
    is_input = what.strip().startswith("input") and activation.shape[-1] == spec.hidden_size
    is_input = is_input and last not in {"output", "down"}  # these read what tensor parallelism has split
    if is_stream or _is_between(module) or module == "output of the last layer":
        pass
    elif not (is_input and stack.regathers_inputs):
        return activation
    return replace(activation, num_bytes=-(-activation.num_bytes // strategy.tensor_parallel))


def _scaled(work: Work, times: int, over: int) -> Work:
    """A share of some work; counts of operations need not be whole afterwards."""
    share = times / over
    return work * share


__all__ = ["Piece", "formula_recipe", "pieces", "stream_format"]
