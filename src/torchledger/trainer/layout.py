"""What a layout asks of each rank, and which layouts are built: the rest is refused by name, all at once."""

from collections.abc import Iterator
from dataclasses import replace

from torchledger.spec import ModelSpec, Recipe, Strategy
from torchledger.spec.check import Mistake, refuse
from torchledger.trainer.ranks import Ranks

__all__ = ["local_recipe", "require_layout", "strategy_for"]


def strategy_for(strategy: Strategy, ranks: Ranks) -> Strategy:
    """The layout of a run: where none is asked for, every rank is a replica of the model.

    >>> strategy_for(Strategy(), Ranks(0, 4)).data_parallel
    4
    """
    return replace(strategy, data_parallel=ranks.size) if strategy.num_ranks == 1 else strategy


def local_recipe(recipe: Recipe, strategy: Strategy) -> Recipe:
    """The recipe as one rank runs it: its share of the batch in its micro-batches, and as many steps.

    >>> asked = Recipe(batch_size=16, accumulation_steps=2, num_tokens=10 * 16 * 1024)
    >>> mine = local_recipe(asked, Strategy(data_parallel=4))
    >>> mine.batch_size, mine.micro_batch_size, mine.num_steps
    (4, 2, 10)
    """
    share = strategy.data_parallel
    if share == 1 and not strategy.micro_batch_size:
        return recipe
    rows = recipe.batch_size // share
    accumulation = rows // strategy.micro_batch_size if strategy.micro_batch_size else recipe.accumulation_steps
    steps = recipe.num_steps
    return replace(
        recipe, batch_size=rows, accumulation_steps=accumulation, num_tokens=steps * rows * recipe.sequence_length
    )


def require_layout(spec: ModelSpec, recipe: Recipe, strategy: Strategy, ranks: Ranks) -> None:
    """Refuse a layout that these ranks cannot run, or that is not built.

    Raises:
        SpecError: with every such field in it.
    """
    found = [*_of_ranks(recipe, strategy, ranks), *_unbuilt(strategy)]
    if strategy.tensor_parallel > 1:
        found += _divisions(spec, recipe, strategy.tensor_parallel, strategy)
    refuse("the run cannot be spread like this", found)


def _of_ranks(recipe: Recipe, strategy: Strategy, ranks: Ranks) -> Iterator[Mistake]:
    """Numbers that have to divide each other."""
    if strategy.num_ranks != ranks.size:
        start = f"start it with torchrun --standalone --nproc-per-node={strategy.num_ranks} -m torchledger train ..."
        yield "strategy", f"is for {strategy.num_ranks} ranks, and {ranks.size} run; {start}, or change it"
    data, group = strategy.data_parallel, strategy.shard_group
    if recipe.batch_size % data:
        yield "strategy.data_parallel", f"{data} ranks cannot share a batch of {recipe.batch_size} sequences evenly"
        return
    rows = recipe.batch_size // data
    if strategy.micro_batch_size and rows % strategy.micro_batch_size:
        message = f"{strategy.micro_batch_size} does not divide the {rows} sequences of a rank"
        yield "strategy.micro_batch_size", message
    if not strategy.micro_batch_size and rows % recipe.accumulation_steps:
        message = f"{recipe.accumulation_steps} does not divide the {rows} sequences of a rank"
        yield "recipe.accumulation_steps", message
    if group and (data % group or not strategy.shard_level):
        yield "strategy.shard_group", f"{group} needs shard_level 3, and to divide data_parallel {data}"


def _unbuilt(strategy: Strategy) -> Iterator[Mistake]:
    why = "the planner knows it, the trainer does not do it"
    if strategy.stack != "torchledger":
        yield "strategy.stack", f"{strategy.stack!r} is another trainer; this one is torchledger"
    if strategy.shard_level in {1, 2}:
        yield "strategy.shard_level", f"{strategy.shard_level}: {why}; use 0 (replicas) or 3 (shards)"
    for name in ("pipeline_parallel", "context_parallel", "expert_parallel"):
        if getattr(strategy, name) > 1:
            yield f"strategy.{name}", f"{getattr(strategy, name)}: {why}; set it to 1"
    if strategy.overlap_tensor:
        yield "strategy.overlap_tensor", f"{why}; set it to false"
    if strategy.shard_level and strategy.prefetch != 1:
        yield "strategy.prefetch", f"{strategy.prefetch}: {why}; set it to 1"
    if strategy.tensor_parallel > 1 and not strategy.vocab_parallel:
        yield "strategy.vocab_parallel", f"a whole embedding beside split layers: {why}; set it to true"


def _divisions(spec: ModelSpec, recipe: Recipe, ranks: int, strategy: Strategy) -> Iterator[Mistake]:
    """What tensor parallel ranks split."""
    heads, shared = spec.attention.num_heads, spec.num_key_value_heads
    fitting = [each for each in range(2, heads + 1) if not (heads % each or (shared % each and each % shared))]
    sizes = {"attention heads": heads}
    if not heads % ranks and ranks not in fitting:
        remedy = f"it can be {', '.join(map(str, fitting))}"
        message = f"{ranks} neither divides {shared} key-value heads nor is a multiple of them; {remedy}"
        yield "strategy.tensor_parallel", message
    if any(not group.is_moe for group in spec.layer_groups):
        sizes["columns of the MLP"] = spec.mlp.intermediate_size
    if spec.moe is not None:
        sizes["columns of an expert"] = spec.moe.intermediate_size
        sizes["columns of the shared expert"] = spec.moe.shared_intermediate_size
    if strategy.sequence_parallel:
        sizes["tokens of a sequence"] = recipe.sequence_length
    for what, size in sizes.items():
        if size % ranks:
            yield "strategy.tensor_parallel", f"{ranks} does not divide the {size} {what}"
