"""Shape rules between ranks: how many there are, pipeline stages, experts, shards, and the batch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from torchledger.planner.refusal import Question, Refusal, nearest
from torchledger.planner.schedule_order import MicroBatchGroups, runs_in_groups
from torchledger.spec import Strategy

_SIZES = (
    "data_parallel",
    "tensor_parallel",
    "pipeline_parallel",
    "context_parallel",
    "expert_parallel",
    "virtual_stages",
)
_BATCH = frozenset({"data_parallel", "micro_batch_size"})
_GROUPS: dict[MicroBatchGroups, str] = {
    "stages": "groups of",
    "equal": "equal groups of at least",
    "any": "groups of at least",
}


def sizes(strategy: Strategy) -> Iterator[Refusal]:
    """Numbers that are none."""
    for name in _SIZES:
        value = getattr(strategy, name)
        if value < 1:
            yield Refusal(f"{name} is {value}", "it is at least 1", frozenset({name}))
    for name in ("shard_group", "micro_batch_size", "expert_tensor_parallel", "prefetch"):
        value = getattr(strategy, name)
        if value < 0:
            yield Refusal(f"{name} is {value}", "it is at least 0", frozenset({name}))
    if strategy.shard_level not in {0, 1, 2, 3}:
        reason = f"shard_level is {strategy.shard_level}"
        yield Refusal(reason, "ZeRO's levels are 0, 1, 2 and 3", frozenset({"shard_level"}))


def ranks(question: Question) -> Iterator[Refusal]:
    """Ranks against chips."""
    strategy, chips = question.strategy, question.cluster.num_chips
    if strategy.num_ranks == chips:
        return
    inner = {name: getattr(strategy, name) for name in ("tensor_parallel", "pipeline_parallel", "context_parallel")}
    fields = frozenset({"data_parallel", *inner})
    factors = " · ".join(
        f"{name} {size}" for name, size in {"data_parallel": strategy.data_parallel, **inner}.items() if size > 1
    )
    ranks = f"{factors} = {strategy.num_ranks} ranks" if " · " in factors else factors or "one rank"
    product = math.prod(inner.values())
    remedy = f"data_parallel {chips // product} uses all of them" if chips % product == 0 else _dividing(chips, inner)
    yield Refusal(f"{ranks} on {chips} chips", remedy, fields)


def _dividing(chips: int, inner: Mapping[str, int]) -> str:
    """Which of the sizes divides the chips if it alone changes, and how; where none does, what all of them must.

    >>> _dividing(8, {"tensor_parallel": 1, "pipeline_parallel": 3})
    'pipeline_parallel that divides 8: 1, 2 and 4'
    >>> _dividing(8, {"tensor_parallel": 3, "pipeline_parallel": 2}), _dividing(8, {"tensor_parallel": 3, "a": 5})
    ('tensor_parallel that divides 4: 1, 2 and 4', 'tensor_parallel · a that divides 8: 2, 4 and 8')
    """
    product = math.prod(inner.values())
    shared = {name: size for name, size in inner.items() if size > 1}
    left = {name: chips // (product // size) for name, size in shared.items() if chips % (product // size) == 0}
    if not left:
        return f"{' · '.join(shared)} that divides {chips}: {nearest(chips, product)}"
    return ", or ".join(f"{name} that divides {rest}: {nearest(rest, inner[name])}" for name, rest in left.items())


def stages(question: Question) -> Iterator[Refusal]:
    """Layers over pipeline stages and their chunks."""
    spec, strategy, rules = question.spec, question.strategy, question.stack
    pipeline, virtual, layers = strategy.pipeline_parallel, strategy.virtual_stages, spec.num_layers
    fields = frozenset({"pipeline_parallel", "virtual_stages", "stage_layers"})
    chunks = pipeline * virtual
    if strategy.stage_layers:
        given = strategy.stage_layers
        if len(given) != chunks:
            yield Refusal(
                f"stage_layers has {len(given)} numbers for {pipeline} stages of {virtual} chunks",
                f"give {chunks}",
                fields,
            )
        if sum(given) != layers:
            yield Refusal(f"stage_layers add up to {sum(given)} layers", f"the model has {layers}", fields)
        if min(given) < 0:
            yield Refusal(f"stage_layers has {min(given)} layers", "a chunk has at least 0", fields)
        return
    if layers < chunks:
        reason = f"{layers} layers are fewer than {pipeline} stages of {virtual} chunks"
        yield Refusal(reason, _fewer_chunks(layers, pipeline, virtual), fields)
        return
    units = layers + 2 if rules.embeddings_as_layers and chunks > 1 else layers
    if units % chunks and not rules.uneven_layers:
        what = f"{layers} layers and both embeddings" if units > layers else f"{layers} layers"
        reason = f"{rules.name} spreads {what} evenly, and {chunks} chunks do not divide them"
        remedy = f"pipeline_parallel · virtual_stages that divides: {nearest(units, chunks)}"
        yield Refusal(reason, remedy, fields | {"stack"})


def _fewer_chunks(layers: int, pipeline: int, virtual: int) -> str:
    """What keeps a layer for each chunk; several chunks a stage are at least two, of at least two stages.

    >>> _fewer_chunks(12, 4, 7), _fewer_chunks(12, 8, 2)
    ('virtual_stages of at most 3', 'pipeline_parallel of at most 6')
    """
    if virtual == 1:
        return f"pipeline_parallel of at most {layers}"
    most = [
        f"{name} of at most {layers // other}"
        for name, other in (("virtual_stages", pipeline), ("pipeline_parallel", virtual))
        if layers // other > 1
    ]
    return ", or ".join(most) or f"virtual_stages 1 and pipeline_parallel of at most {layers}"


def schedule(question: Question) -> Iterator[Refusal]:
    """Schedules that the stack has, and what each asks of chunks and micro-batches."""
    strategy, rules = question.strategy, question.stack
    pipeline, virtual, name = strategy.pipeline_parallel, strategy.virtual_stages, strategy.schedule
    if pipeline == 1:
        if virtual > 1:
            fields = frozenset({"pipeline_parallel", "virtual_stages"})
            yield Refusal(f"virtual_stages {virtual} without a pipeline", "virtual_stages 1", fields)
        return
    fields = frozenset({"pipeline_parallel", "schedule", "virtual_stages"})
    if name not in rules.schedules:
        has = f"it has {', '.join(rules.schedules)}" if rules.schedules else "pipeline_parallel 1"
        what = f"schedule {name}" if rules.schedules else "pipeline"
        yield Refusal(f"{rules.name} has no {what}", has, frozenset({"pipeline_parallel", "schedule", "stack"}))
    if name == "interleaved" and virtual == 1:
        yield Refusal("interleaved stages have at least two chunks", "virtual_stages 2 or more, or 1f1b", fields)
    if name == "dualpipe" and pipeline % 2:
        reason = f"dualpipe has an even number of stages, not {pipeline}"
        yield Refusal(reason, "an even pipeline_parallel", frozenset({"pipeline_parallel", "schedule"}))
    if name != "interleaved" and virtual > 1:  # dualpipe's second chunk is the other end's stage, not one of its own
        yield Refusal(f"{name} has one chunk a stage, not {virtual}", "virtual_stages 1, or interleaved", fields)
    number = _micro_batches(question)
    if number is None:
        return
    if name == "interleaved" and not runs_in_groups(rules.micro_batch_groups, pipeline, number):
        sizes = f"{_GROUPS[rules.micro_batch_groups]} {pipeline}"
        reason = f"interleaved runs micro-batches in {sizes}, and there are {number}"
        yield Refusal(reason, f"a multiple of {pipeline} micro-batches", fields | _BATCH | {"stack"})
    if name == "dualpipe" and (number % 2 or number < 2 * pipeline):
        reason = f"dualpipe needs an even number of at least {2 * pipeline} micro-batches, not {number}"
        yield Refusal(reason, "a smaller micro_batch_size or data_parallel", fields | _BATCH)


def _micro_batches(question: Question) -> int | None:
    """Micro-batches of a step; nothing where the batch does not split, which is another rule's matter."""
    recipe, strategy = question.recipe, question.strategy
    size = strategy.micro_batch_size
    if not size:
        own = recipe.accumulation_steps
        return own if recipe.batch_size % (strategy.data_parallel * own) == 0 else None
    return (
        None
        if recipe.batch_size % (strategy.data_parallel * size)
        else (recipe.batch_size // (strategy.data_parallel * size))
    )


def experts(question: Question) -> Iterator[Refusal]:
    """Experts over ranks taken out of a stage's: data, context, and tensor parallel ones that do not split experts."""
    spec, strategy, rules = question.spec, question.strategy, question.stack
    ranks = strategy.expert_parallel
    fields = frozenset({"expert_parallel"})
    if ranks == 1:
        return
    if spec.moe is None:
        yield Refusal(f"{spec.name} has no experts to spread over expert_parallel {ranks}", "expert_parallel 1", fields)
        return
    if not rules.expert_parallel:
        reason = f"{rules.name} has no expert parallelism"
        yield Refusal(reason, "expert_parallel 1 or another stack", fields | {"stack"})
    number = spec.moe.num_experts
    if number % ranks:
        reason = f"expert_parallel {ranks} does not divide {number} experts"
        yield Refusal(reason, f"{nearest(number, ranks)} do", fields)
    # Megatron-Core folds expert ranks out of all ranks of a stage (arXiv:2504.14960)
    tensor = strategy.expert_tensor_parallel or strategy.tensor_parallel
    within = strategy.data_parallel * strategy.context_parallel * strategy.tensor_parallel
    if within % (ranks * tensor):
        each = f" · {tensor} ranks of each expert" if tensor > 1 else ""
        reason = f"expert_parallel {ranks}{each} does not divide the {within} ranks of a stage that it is taken from"
        remedy = f"{nearest(max(1, within // tensor), ranks)} do"
        taken = {"data_parallel", "context_parallel", "tensor_parallel", "expert_tensor_parallel"}
        yield Refusal(reason, remedy, fields | taken)


def shards(question: Question) -> Iterator[Refusal]:
    """ZeRO levels that the stack has, alone and with a pipeline, and groups of replicas."""
    strategy, rules = question.strategy, question.stack
    level, group, replicas = strategy.shard_level, strategy.shard_group, strategy.data_parallel
    levels = rules.shard_levels if strategy.pipeline_parallel == 1 else rules.pipeline_shard_levels
    if level not in levels:
        with_pipeline = level in rules.shard_levels
        where = f" with {strategy.pipeline_parallel} pipeline stages" if with_pipeline else ""
        read = {"shard_level", "stack"} | ({"pipeline_parallel"} if with_pipeline else set())
        has = ", ".join(str(each) for each in levels)
        other = f"; stack {rules.sharded_as} has {level}" if rules.sharded_as else ""
        yield Refusal(f"{rules.name} has no shard_level {level}{where}", f"it has {has}{other}", frozenset(read))
    elif level == 3 and not strategy.reshard and not rules.keeps_gathered:
        reason = f"{rules.name} gives gathered weights back after every forward pass"
        yield Refusal(reason, "reshard true", frozenset({"shard_level", "reshard", "stack"}))
    fields = frozenset({"shard_group", "data_parallel"})
    if group and replicas % group:
        reason = f"shard_group {group} does not divide data_parallel {replicas}"
        yield Refusal(reason, f"{nearest(replicas, group)} do", fields)
    elif group and level == 0:
        reason = f"shard_group {group} without a shard_level shards nothing"
        yield Refusal(reason, "shard_group 0 or a shard_level", frozenset({"shard_group", "shard_level"}))
    elif group and strategy.expert_parallel > 1:
        # ranks that share the experts are taken out of one shard group, and replicas of it repeat them (torchtitan
        # torchtitan/distributed/parallel_dims.py)
        within = strategy.num_sharers * strategy.tensor_parallel
        taken = strategy.expert_parallel * (strategy.expert_tensor_parallel or strategy.tensor_parallel)
        if within % taken:
            reason = f"expert_parallel {strategy.expert_parallel} does not divide the ranks of a shard_group of {group}"
            read = {"expert_parallel", "expert_tensor_parallel", "tensor_parallel", "context_parallel", "shard_level"}
            yield Refusal(reason, "shard_group 0, or a larger one", fields | read)


def batch(question: Question) -> Iterator[Refusal]:
    """Sequences over replicas and micro-batches."""
    recipe, strategy = question.recipe, question.strategy
    sequences, replicas, size = recipe.batch_size, strategy.data_parallel, strategy.micro_batch_size
    if sequences % replicas:
        reason = f"data_parallel {replicas} does not divide a batch of {sequences} sequences"
        yield Refusal(reason, f"{nearest(sequences, replicas)} do", frozenset({"data_parallel"}))
        return
    own = sequences // replicas
    if size and own % size:
        reason = f"micro_batch_size {size} does not divide the {own} sequences of a replica"
        yield Refusal(reason, f"{nearest(own, size)} do", _BATCH)
    elif not size and own % recipe.accumulation_steps:
        reason = f"accumulation_steps {recipe.accumulation_steps} does not divide the {own} sequences of a replica"
        yield Refusal(reason, f"{nearest(own, recipe.accumulation_steps)} do", _BATCH)


__all__ = ["batch", "experts", "ranks", "schedule", "shards", "sizes", "stages"]
