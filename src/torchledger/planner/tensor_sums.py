"""What ranks that split matrices send for the gradients of what each of them holds whole."""

from __future__ import annotations

from collections.abc import Iterator

from torchledger.formula import parameters
from torchledger.formula.optimizer import trained
from torchledger.formula.precision import FORMATS
from torchledger.formula.value import ELEMENT_BYTES
from torchledger.ledger import Line
from torchledger.planner.key_value_heads import cutters_of
from torchledger.planner.shard import num_micro_batches, sharded_spec
from torchledger.planner.shard_sums import summed
from torchledger.planner.stack import stack
from torchledger.spec import ModelSpec, Recipe, Strategy

__all__ = ["tensor_sums"]


def tensor_sums(spec: ModelSpec, recipe: Recipe, strategy: Strategy) -> Iterator[Line]:
    """The lines of one step of torchledger's own trainer: a sum for each parameter of whose gradient ranks have shares.

    Those are all of them; or, of what makes a key-value head, those that hold the same one.

    It runs once a step; where other ranks share the parameters too (FSDP2), in every micro-batch, before they reduce
    the gradient.
    """
    tensor = strategy.tensor_parallel
    if tensor == 1:
        return
    is_spread = strategy.shard_level == 3 and strategy.num_sharers > 1
    times = num_micro_batches(recipe, strategy) if is_spread else 1
    element = int(ELEMENT_BYTES[FORMATS[recipe.precision].stored])
    for each in trained(parameters(sharded_spec(spec, strategy, stack(strategy.stack)), recipe)):
        shared = _is_shared(each.name, spec, strategy)
        ranks = tensor if shared else tensor // cutters_of(each.name, spec, strategy)
        yield from summed(each.name, element * int(each.num_elements), ranks, times * int(each.times))


def _is_shared(name: str, spec: ModelSpec, strategy: Strategy) -> bool:
    """Whether each rank finds a share of the gradient of a parameter that all hold whole.

    Within a layer each sees a share of the heads, or of the columns of an MLP; with sequence parallelism, everywhere
    between, of the tokens. Of an adapter A is whole where outputs are split, B where inputs are, and both where nothing
    is.
    """
    module, _, _ = name.rpartition(".")
    module, _, adapter = module.partition(".lora_")
    last = module.rpartition(".")[2]
    if adapter:
        return last in _WHOLE or (adapter == "b") == (last in {"output", "down"})
    if last in {"query_norm", "key_norm"}:
        return spec.attention.query_key_norm != "full"
    if last in _WHOLE:
        return True
    return strategy.sequence_parallel and ("norm" in last or last in _BETWEEN)


#: Within layers, whole on every rank.
_WHOLE = frozenset({"router", "shared_gate", "query_down", "query_down_norm", "key_value_down", "key_value_down_norm"})
#: Beside the norms, between the layers' matrices.
_BETWEEN = frozenset({"position_embedding", "embedding_projection", "embedding_projection_out", "projection"})
