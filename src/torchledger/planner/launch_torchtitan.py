"""A layout as torchtitan's command line."""

from __future__ import annotations

from torchledger.planner.launch_said import Facts, Said, refuse_common
from torchledger.planner.shard import micro_batch_size, num_micro_batches
from torchledger.spec import ModelSpec, Recipe, Strategy


def torchtitan(spec: ModelSpec, recipe: Recipe, strategy: Strategy, facts: Facts) -> Said:
    """Layout and recipe as flags over a configuration function, which has the model."""
    said = Said(facts, flags=["--module", "MODULE", "--config", "CONFIG"])
    _sharding(said, strategy)
    _ranks(said, spec, strategy)
    _pipeline(said, spec, recipe, strategy)
    length = recipe.sequence_length
    said.say("micro_batch_tokens", micro_batch_size(recipe, strategy) * length)
    said.say("step_tokens", recipe.batch_size * length)
    said.say("sequence_length", length)
    _recipe(said, recipe)
    refuse_common(said, recipe)
    # a subcommand ends the options of the command before it, so it stands last
    if recipe.recompute in facts["recomputes"] and not recipe.recompute_layers:
        said.flags.append(facts["recomputes"][recipe.recompute])
    return said


def _sharding(said: Said, strategy: Strategy) -> None:
    """Its data parallel ranks shard parameters, gradients and state together (level 3), or nothing at all."""
    level, ranks = strategy.shard_level, strategy.data_parallel
    if level == 3:
        group = strategy.shard_group or ranks
        said.say("replicate", ranks // group)
        said.say("shard", group)
        said.say("reshard", "always" if strategy.reshard else "never")
        said.refuse_if(
            strategy.prefetch != 1, f"no flag says how many layers ahead ({strategy.prefetch}) weights are gathered"
        )
    else:
        said.say("replicate", ranks)
        said.say("shard", 1)
        said.refuse_if(level, f"it shards parameters, gradients and optimizer state together, not level {level}")
        said.refuse_if(
            level == 0 and strategy.context_parallel > 1, "context parallel ranks always share the parameters (level 3)"
        )
    said.refuse_if(not strategy.overlap_data, "gathering and reduction always overlap with computing")


def _ranks(said: Said, spec: ModelSpec, strategy: Strategy) -> None:
    said.say("tensor_parallel", strategy.tensor_parallel)
    if strategy.tensor_parallel > 1:
        said.say("sequence_parallel" if strategy.sequence_parallel else "no_sequence_parallel")
        said.refuse_if(
            not strategy.vocab_parallel, "embedding and head are always split over the tensor parallel ranks"
        )
    if strategy.overlap_tensor:
        said.say("compile")
        said.say("overlap_tensor")
    said.say("context_parallel", strategy.context_parallel)
    said.refuse_if(
        strategy.context_parallel > 1 and strategy.context_kind == "ulysses",
        "context parallelism passes or gathers keys and values, it does not exchange heads (ulysses)",
    )
    said.refuse_if(
        strategy.context_parallel > 1 and strategy.context_kind == "ring",
        "no flag chooses a ring: torch gathers keys and values unless its rotation is set in code",
    )
    if spec.moe is not None:
        said.say("expert_parallel", strategy.expert_parallel)
        said.refuse_if(
            strategy.tensor_parallel > 1 and strategy.expert_tensor_parallel != 1,
            "experts are not split by tensor parallelism (expert_tensor_parallel is 1)",
        )


def _pipeline(said: Said, spec: ModelSpec, recipe: Recipe, strategy: Strategy) -> None:
    said.say("pipeline_parallel", strategy.pipeline_parallel)
    if strategy.pipeline_parallel > 1 or strategy.expert_parallel > 1:
        said.say("no_graphs")  # its graphs refuse pipelines and dispatch that asks the host
    if strategy.pipeline_parallel == 1:
        return
    schedules = said.facts["schedules"]
    if strategy.schedule in schedules:
        said.say("schedule", schedules[strategy.schedule])
    else:
        said.refuse(f"torch has no {strategy.schedule} schedule of one model chunk a rank")
    said.say("num_micro_batches", num_micro_batches(recipe, strategy))
    said.refuse_if(strategy.stage_layers, "stages of given sizes are module lists of a configuration function, no flag")
    num_chunks = strategy.pipeline_parallel * strategy.virtual_stages
    per_chunk = -(-spec.num_layers // num_chunks)
    said.say("first_stage_less", 0)
    said.say("last_stage_less", 0)
    said.say("layers_per_stage", per_chunk)
    said.refuse_if(
        -(-spec.num_layers // per_chunk) != num_chunks,
        f"{per_chunk} layers a chunk make {-(-spec.num_layers // per_chunk)} chunks of {spec.num_layers} layers,"
        f" not {num_chunks}",
    )


def _recipe(said: Said, recipe: Recipe) -> None:
    match recipe.precision:
        case "fp32":
            said.say("mixed_precision", "float32")
        case "bf16":
            said.say("mixed_precision", "bfloat16")
        case "bf16-pure":
            said.say("dtype", "bfloat16")
        case _:
            said.refuse(
                f"precision {recipe.precision} is a converter of the model's configuration function or not there"
            )
    said.refuse_if(
        recipe.recompute == "selective",
        "its selective recompute keeps every second matmul; the attention core alone is none of its policies",
    )
    said.refuse_if(recipe.recompute_layers, f"recompute of {recipe.recompute_layers} layers only has no flag")
    said.refuse_if(
        recipe.optimizer.kind != "adamw", f"optimizer {recipe.optimizer.kind} is chosen in the configuration function"
    )
