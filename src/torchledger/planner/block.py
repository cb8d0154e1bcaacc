"""`pieces`: a model's parts as one rank runs them on one micro-batch, from the formula on the sharded question.

What a sharded spec cannot say is done to its lines: sequence parallelism divides what norms, dropout and residual
additions compute and keep; the queries of a context parallel rank see the keys of the whole sequence; a router scores
all experts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

from torchledger.formula import KERNELS, Activation, Kernels, Parameter, Part, parts
from torchledger.formula.optimizer import trained
from torchledger.formula.value import ELEMENT_BYTES
from torchledger.ledger import Amount, Line
from torchledger.ops import causal_pairs
from torchledger.planner.exchange import (
    Exchange,
    embedding_exchanges,
    head_exchanges,
    layer_exchanges,
    with_recompute,
)
from torchledger.planner.flowing import flowing
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
        runs: where in the depth they are: (index of the first, how many) of neighbours; nothing for what is no layer.
    """

    block: Block
    exchanges: tuple[Exchange, ...]
    num_layers: int
    runs: tuple[tuple[int, int], ...]


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
                tuple((each.first, each.count) for each in part.runs),
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
    found = _exchanges(part, spec, recipe, strategy, stack)
    return flowing(found, part, spec, recipe)


def _exchanges(part: Part, spec: ModelSpec, recipe: Recipe, strategy: Strategy, stack: Stack) -> tuple[Exchange, ...]:
    element_bytes = stream_bytes_of(recipe, stack)
    is_cast = meant_precision(recipe, stack) in {"bf16", "fp16"}  # autocast: matmuls give 16 bits
    ends = embedding_exchanges(spec, recipe, strategy, element_bytes)
    if part.kind == "embedding":
        return ends
    head_bytes = 2 if is_cast and spec.embedding_size is not None else element_bytes
    head = head_exchanges(spec, recipe, strategy, head_bytes)
    if part.kind == "head":
        return head
    is_moe = part.layer is not None and part.layer.is_moe
    once = layer_exchanges(
        spec,
        recipe,
        strategy,
        is_moe=is_moe,
        element_bytes=element_bytes,
        regathers=stack.regathers_inputs,
        routes_first=stack.routes_first,
        sums_apart=stack.sums_apart,
        sum_bytes=2 if is_cast else None,
        read_bytes={name: int(ELEMENT_BYTES[each]) for name, each in part.read_formats} if is_cast else {},
        dispatches_once=stack.dispatches_once,
        hides_dispatch=stack.hides_dispatch,
    )
    # a second run that stops at the last tensor it has to save: behind the last sum a norm keeps one, or dropout
    ends_early = stack.stops_early and spec.norm.placement == "pre" and not spec.dropout
    layer = with_recompute(once, recipe.recompute, without_last_sum=ends_early)
    return (*ends, *layer, *head) if part.kind == "prediction" else layer


def _block(
    part: Part, spec: ModelSpec, recipe: Recipe, strategy: Strategy, stack: Stack, *, shard: ModelSpec, stream: int
) -> Block:
    held = [each for each in part.parameters if each.tied_to is None]
    dense = [_whole_router(each, spec, shard) for each in held if ".experts." not in each.name]
    experts = [each for each in held if ".experts." in each.name]
    kept = tuple(_activation(each, spec, strategy, stack) for each in part.activations)
    tokens = recipe.batch_size * recipe.sequence_length
    num_dense = sum(each.total for each in dense)
    divided = strategy.tensor_parallel if strategy.sequence_parallel else 1
    return Block(
        name=part.name,
        kind=part.kind,
        lines=tuple(_line(each, part, spec, recipe, strategy, stack, shard=shard) for each in part.lines),
        num_parameters=num_dense,
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
        root_elements=num_dense if is_in_root(part.kind, spec, strategy, stack) else 0,
        added_elements=num_dense if is_added_up(part.kind, spec, strategy, stack) else 0,
        gathers_again=gathers_again(part, spec, stack),
    )


def is_in_root(kind: str, spec: ModelSpec, strategy: Strategy, stack: Stack) -> bool:
    """Whether level 3 gathers a part in one group with the other end of the model, kept through both passes."""
    if kind not in {"embedding", "head"}:
        return False
    is_shared = spec.num_prediction_layers > 0 or (spec.tied_embeddings and strategy.pipeline_parallel == 1)
    return stack.root_holds_embedding or (stack.ends_together and is_shared)


def is_added_up(kind: str, spec: ModelSpec, strategy: Strategy, stack: Stack) -> bool:
    """Whether a part's gradient is added up from several places: a tied table's, and what prediction layers read."""
    is_tied = spec.tied_embeddings and strategy.pipeline_parallel == 1 and kind == "embedding"
    return is_in_root(kind, spec, strategy, stack) and (is_tied or spec.num_prediction_layers > 0)


def gathers_again(part: Part, spec: ModelSpec, stack: Stack) -> bool:
    """Whether shards of a part are gathered for a backward pass too: one comes by, or by what is gathered with it.

    Nothing flows back into layers before the first that is trained, nor into an embedding that is not. A tied one is
    the head, whose input has a gradient; a root group is gathered as a whole.
    """
    is_end = part.kind in {"embedding", "head"}
    if is_end and (spec.tied_embeddings or spec.num_prediction_layers or stack.root_holds_embedding):
        return True
    own = "prediction.*." if part.kind == "prediction" else ""  # its lines have a share of the head's
    return any(line.phase == "backward" and line.module.startswith(own) for line in part.lines)


def _whole_router(parameter: Parameter, spec: ModelSpec, shard: ModelSpec) -> Parameter:
    """A router's matrix and biases have a row for every expert, on every rank."""
    if spec.moe is None or shard.moe is None or ".router." not in parameter.name:
        return parameter
    return replace(parameter, shape=(spec.moe.num_experts, *parameter.shape[1:]))


def _line(  # noqa: PLR0917  # what a line of the rank depends on
    line: Line, part: Part, spec: ModelSpec, recipe: Recipe, strategy: Strategy, stack: Stack, *, shard: ModelSpec
) -> Line:
    """A line of the sharded spec as the rank runs it."""
    if strategy.context_parallel > 1 and line.module.endswith(".core"):
        window = 0 if part.layer is None else part.layer.window
        line = _with_all_keys(line, recipe.sequence_length, strategy.context_parallel, window)
    if spec.moe is not None and shard.moe is not None and line.module.endswith(".router"):
        line = _with_all_experts(line, spec.moe.num_experts, shard.moe.num_experts)
    is_moe = part.layer is not None and part.layer.is_moe
    routes_all = stack.routes_all_tokens
    return _with_tokens_over(line, token_ranks(line.module, strategy, is_moe=is_moe, routes_all=routes_all))


def token_ranks(module: str, strategy: Strategy, *, is_moe: bool = False, routes_all: bool = False) -> int:
    """Tensor parallel ranks that split the tokens of a module, and do not all run it on all of them.

    With sequence parallelism those are all between the matmuls that tensor parallelism splits: norms, residual
    additions, dropout, the embedding's output, a router's scores (Korthikanti et al., arXiv:2205.05198, section 4.2.2);
    and where experts are split by fewer ranks, each sends its own tokens to them and adds up what comes back
    (arXiv:2504.14960, section 3). With `routes_all` a router has all tokens, gathered for the experts.

    >>> both = Strategy(tensor_parallel=4, sequence_parallel=True, expert_tensor_parallel=2)
    >>> [token_ranks(f"layers.*.{name}", both) for name in ("mlp_norm", "mlp.router", "mlp.experts.*.up", "mlp.up")]
    [4, 4, 2, 1]
    """
    tensor = strategy.tensor_parallel
    if tensor == 1 or not strategy.sequence_parallel:
        return 1
    if module.endswith((".router", ".shared_gate")) or ".router." in module:
        return 1 if routes_all else tensor
    if _is_between(module):
        return tensor
    if any(each in module for each in _OF_EXPERTS) or (is_moe and module.endswith(".mlp")):
        return tensor // (strategy.expert_tensor_parallel or tensor)
    return 1


def _with_tokens_over(line: Line, ranks: int) -> Line:
    """A rank's share of a line's tokens: the rows of a product, the depth of a weight gradient."""
    if ranks == 1:
        return line
    rows = "k" if line.gradient_of == "weight" else "m"
    shape = tuple((name, -(-size // ranks) if name == rows else size) for name, size in line.shape)
    return replace(line, shape=shape, work=line.work * (1 / ranks))


def _with_all_experts(line: Line, num_experts: int, mine: int) -> Line:
    """A router scores every expert, and the sharded model has only those of the rank."""
    shape = tuple((name, num_experts if size == mine and name in "mnk" else size) for name, size in line.shape)
    return replace(line, shape=shape, work=line.work * (num_experts / mine))


def _with_all_keys(line: Line, tokens: int, ranks: int, window: int) -> Line:
    """Queries of one rank's tokens, keys of all ranks'.

    All pairs are so many times those of the rank alone as there are ranks. Those that a causal mask lets through are an
    even share of the whole sequence's: a rank has an early and a late piece of it (arXiv:2407.21783, section 3.3.2).
    """
    if line.kind not in {"attention", "reduction"}:  # copies and scales of queries, keys or values alone
        return line
    work = line.work
    seen = causal_pairs(tokens * ranks, window) / (ranks * causal_pairs(tokens, window))
    masked = line.kind == "attention" and work.flops_exact != work.flops_full
    executed = ranks if work.flops_executed == work.flops_full or not masked else seen
    return replace(
        line,
        shape=tuple((name, size * ranks if name in _KEYS else size) for name, size in line.shape),
        work=replace(
            work,
            flops_full=_times(work.flops_full, ranks),
            flops_exact=_times(work.flops_exact, seen if masked else ranks),
            flops_executed=_times(work.flops_executed, executed),
            transcendentals=_times(work.transcendentals, ranks),
        ),
    )


def _times(amount: Amount, factor: float) -> Amount:
    return None if amount is None else amount * factor


#: Sizes of a line's shape that count keys.
_KEYS = frozenset({"keys", "columns"})
#: Modules that stand for every layer.
_LAYERS = frozenset({"layers.*", "prediction.*"})
#: Modules and activations of what goes to the experts and comes back.
_OF_EXPERTS = (".mlp.experts.", ".mlp.token copies", ".mlp.expert outputs by token")


def _is_between(name: str) -> bool:
    """Whether tensor parallelism leaves it whole: norms, residual additions, dropout, the embedding's output.

    >>> [_is_between(each) for each in ("layers.*.mlp_norm", "layers.*", "layers.*.attention.query_norm", "head")]
    [True, True, False, False]
    """
    if ".attention." in name or ".mlp." in name:
        return False
    last = name.rpartition(".")[2]
    if name in _LAYERS or name == "prediction.*.projection":
        return True
    return "norm" in last or name.startswith(("embedding", "position_embedding"))


def _activation(activation: Activation, spec: ModelSpec, strategy: Strategy, stack: Stack) -> Activation:
    ranks = strategy.expert_parallel
    if ranks > 1 and spec.moe is not None and activation.name.endswith("router.scores"):
        activation = replace(
            activation,
            shape=(*activation.shape[:-1], spec.moe.num_experts),
            num_bytes=activation.num_bytes * spec.moe.num_experts // activation.shape[-1],
        )
    if not strategy.sequence_parallel or strategy.tensor_parallel == 1:
        return activation
    module, _, what = activation.name.partition(":")
    place, _, last = module.rpartition(".")
    is_stream = place in _LAYERS and last.removesuffix(" dropout mask") in {"input", "sum", "output"}
    is_input = what.strip().startswith("input") and activation.shape[-1] == spec.hidden_size
    is_input = is_input and last not in {"output", "down"}  # these read what tensor parallelism has split
    ranks = token_ranks(module, strategy, routes_all=stack.routes_all_tokens)
    if is_stream or module == "output of the last layer" or (is_input and stack.regathers_inputs):
        ranks = strategy.tensor_parallel
    return activation if ranks == 1 else replace(activation, num_bytes=-(-activation.num_bytes // ranks))


__all__ = ["Piece", "formula_recipe", "gathers_again", "is_added_up", "is_in_root", "pieces", "stream_format"]
