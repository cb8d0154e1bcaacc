"""A layout as flags of Megatron-LM's `pretrain_gpt.py`."""

from __future__ import annotations

from torchledger.planner.assembly import layers_of_chunks
from torchledger.planner.launch_said import Facts, Said, refuse_common
from torchledger.planner.schedule_order import micro_batch_group
from torchledger.planner.shard import micro_batch_size, num_micro_batches
from torchledger.planner.stack import stack
from torchledger.spec import ModelSpec, Recipe, Strategy

#: Sharding strategies of Megatron-FSDP by ZeRO level.
_STRATEGIES = ("no_shard", "optim", "optim_grads", "optim_grads_params")
#: Optimizers that Megatron-FSDP has.
_FSDP_OPTIMIZERS = ("adamw", "sgd")
#: Flags by precision; what is not here has none.
_PRECISIONS: dict[str, tuple[tuple[str, ...], ...]] = {
    "fp32": (),
    "bf16": (("bf16",),),
    "bf16-master": (("bf16",),),
    "fp16": (("fp16",),),
    "fp16-master": (("fp16",),),
    "fp8": (("bf16",), ("fp8", "hybrid")),
    "mxfp8": (("bf16",), ("fp8", "e4m3"), ("fp8_recipe", "mxfp8")),
    "nvfp4": (("bf16",), ("fp4", "e2m1")),
}


def megatron(spec: ModelSpec, recipe: Recipe, strategy: Strategy, facts: Facts) -> Said:
    """Model, layout and recipe as flags."""
    said = Said(facts)
    _model(said, spec)
    _ranks(said, spec, strategy)
    _pipeline(said, spec, strategy, num_micro_batches(recipe, strategy))
    _sharding(said, strategy)
    said.say("micro_batch_size", micro_batch_size(recipe, strategy))
    said.say("batch_size", recipe.batch_size)
    said.say("sequence_length", recipe.sequence_length)
    _recipe(said, recipe)
    if _is_fsdp(strategy):
        _fsdp(said, recipe, strategy)
    else:
        said.notes.append("Megatron-LM keeps FP32 main gradients and weights beside BF16 ones")
    refuse_common(said, recipe, offloads_optimizer=True)
    return said


def _ranks(said: Said, spec: ModelSpec, strategy: Strategy) -> None:
    said.say("tensor_parallel", strategy.tensor_parallel)
    if strategy.tensor_parallel > 1:
        if strategy.sequence_parallel:
            said.say("sequence_parallel")
        said.refuse_if(
            not strategy.vocab_parallel, "embedding and head are always split over the tensor parallel ranks"
        )
    if strategy.overlap_tensor:
        if strategy.sequence_parallel:
            said.say("overlap_tensor")
        else:
            said.refuse("tensor parallel collectives overlap matmuls only with sequence parallelism")
    if strategy.context_parallel > 1:
        said.say("context_parallel", strategy.context_parallel)
        said.say("context_kind", said.facts["context_kinds"][strategy.context_kind])
    if spec.moe is not None:
        said.refuse_if(  # megatron/core/transformer/moe/moe_layer.py raises
            strategy.tensor_parallel > 1 and not strategy.sequence_parallel,
            "a mixture trains over tensor parallel ranks only with sequence parallelism",
        )
        said.say("expert_parallel", strategy.expert_parallel)
        if strategy.expert_tensor_parallel:
            said.say("expert_tensor_parallel", strategy.expert_tensor_parallel)
        rules = stack(strategy.stack)
        if rules.dispatches_once:
            said.say("token_dispatcher", "flex")
            said.say("deepep")
        elif rules.hides_dispatch:
            said.say("token_dispatcher", "alltoall")
            said.say("hides_dispatch")


def _pipeline(said: Said, spec: ModelSpec, strategy: Strategy, number: int) -> None:
    if strategy.pipeline_parallel == 1:
        return
    said.say("pipeline_parallel", strategy.pipeline_parallel)
    schedules = {"1f1b", "interleaved"}
    said.refuse_if(
        strategy.schedule not in schedules, f"its schedules are 1F1B and interleaved, not {strategy.schedule}"
    )
    num_chunks = strategy.pipeline_parallel * strategy.virtual_stages
    if strategy.stage_layers or spec.num_layers % num_chunks:  # a layout says the virtual stages too
        uneven = layers_of_chunks(spec.num_layers, num_chunks, stack(strategy.stack).embeddings_as_layers)
        said.say("stage_layers", _layout(strategy.stage_layers or uneven))
    elif strategy.virtual_stages > 1:
        said.say("virtual_stages", strategy.virtual_stages)
    group = micro_batch_group(strategy.pipeline_parallel, number)
    if strategy.schedule == "interleaved" and group != strategy.pipeline_parallel:  # its default
        said.say("micro_batch_group", group)


def _layout(stage_layers: tuple[int, ...]) -> str:
    """Embedding, layers of every chunk in the model's order, loss, in Megatron-LM's own little language.

    >>> _layout((2, 3, 2))
    'Et*2|t*3|t*2L'
    """
    chunks = [f"t*{count}" if count else "" for count in stage_layers]
    return f"E{'|'.join(chunks)}L"


def _is_fsdp(strategy: Strategy) -> bool:
    """Whether Megatron-FSDP shards: always above level 1, and below for a stack that has its buffers of layers."""
    return strategy.shard_level > 1 or stack(strategy.stack).layer_buffers > 0


def _sharding(said: Said, strategy: Strategy) -> None:
    level, is_fsdp = strategy.shard_level, _is_fsdp(strategy)
    if level or is_fsdp:
        said.say("shard_optimizer")
    if is_fsdp:
        said.say("shard_more")
        said.say("shard_level", _STRATEGIES[level])
        said.say("shard_checkpoint", "fsdp_dtensor")
    if level > 1:
        said.refuse_if(
            level == 3 and not strategy.reshard, "sharded weights are always given back after the forward pass"
        )
        said.refuse_if(
            strategy.prefetch != 1, f"no flag says how many layers ahead ({strategy.prefetch}) weights are gathered"
        )
    if level and strategy.shard_group and strategy.shard_group != strategy.data_parallel:
        said.say("shard_instances", strategy.data_parallel // strategy.shard_group)
    if strategy.overlap_data:
        said.say("overlap_gradients")
        if level:
            said.say("overlap_weights")


def _fsdp(said: Said, recipe: Recipe, strategy: Strategy) -> None:
    """What else Megatron-FSDP is told, as the stack's rules have it, and what it asks for."""
    rules = stack(strategy.stack)
    if rules.layer_buffers:
        said.say("layer_buffers")
        if not rules.fused_accumulation:
            said.say("no_fused_accumulation")
    if recipe.precision in rules.gathered_weight_bytes:
        said.say("gather_fp8")
    if strategy.shard_level == 3:
        said.say("build_in_shards")
    kind = recipe.optimizer.kind
    has = ", ".join(_FSDP_OPTIMIZERS)
    said.refuse_if(kind not in _FSDP_OPTIMIZERS, f"Megatron-FSDP has no optimizer {kind} ({has})")
    said.notes.append("Megatron-FSDP asks that CUDA_DEVICE_MAX_CONNECTIONS is not set, or above 1")
    said.notes.append("Megatron-FSDP keeps FP32 main weights, and gradients as --megatron-fsdp-main-grads-dtype says")


def _recipe(said: Said, recipe: Recipe) -> None:
    if recipe.precision in _PRECISIONS:
        for name, *values in _PRECISIONS[recipe.precision]:
            said.say(name, *values)
    else:
        said.refuse(f"precision {recipe.precision} has no flags")
    if recipe.recompute != "none":
        said.say("recompute", recipe.recompute)
    if recipe.recompute == "full":
        said.say("recompute_method", "block" if recipe.recompute_layers else "uniform")
        said.say("recompute_layers", recipe.recompute_layers or 1)
    said.say("attention", "flash" if recipe.attention == "fused" else "unfused")
    optimizers = said.facts["optimizers"]
    if recipe.optimizer.kind in optimizers:
        said.say("optimizer", optimizers[recipe.optimizer.kind])
    else:
        said.refuse(f"optimizer {recipe.optimizer.kind} is not among its own ({', '.join(optimizers)})")
    if recipe.offload_optimizer:
        said.say("precision_aware")  # its hybrid device optimizer asks for it
        said.say("offload_optimizer")


def _model(said: Said, spec: ModelSpec) -> None:
    attention = spec.attention
    said.say("num_layers", spec.num_layers)
    said.say("hidden_size", spec.hidden_size)
    said.say("intermediate_size", spec.mlp.intermediate_size)
    said.say("num_heads", attention.num_heads)
    said.say("head_size", spec.head_size)
    if spec.num_key_value_heads != attention.num_heads and attention.kind == "standard":
        said.say("group_queries")
        said.say("num_key_value_heads", spec.num_key_value_heads)
    said.say("max_sequence_length", spec.max_sequence_length)
    said.say("norm", "RMSNorm" if spec.norm.kind == "rms" else "LayerNorm")
    said.say("epsilon", spec.norm.epsilon)
    _position(said, spec)
    if spec.mlp.kind == "gated" and spec.mlp.activation == "silu":
        said.say("gated")
    elif spec.mlp.activation == "relu_squared" and spec.mlp.kind == "plain":
        said.say("squared")
    elif spec.mlp.kind == "gated" or spec.mlp.activation == "relu":
        said.refuse(f"no flag has a {spec.mlp.kind} MLP with {spec.mlp.activation}")
    biases = [attention.query_bias, attention.key_bias, attention.value_bias, attention.output_bias]
    biases += [spec.mlp.up_bias, spec.mlp.down_bias]
    if not any(biases):
        said.say("no_bias")
    elif not all(biases):
        said.refuse("biases on some linear layers only; its flag has all or none")
    if not spec.tied_embeddings:
        said.say("untied")
    if attention.query_key_norm == "head":
        said.say("query_key_norm")
    if spec.moe is not None:
        said.say("num_experts", spec.moe.num_experts)
        said.say("experts_per_token", spec.moe.experts_per_token)
        said.say("expert_size", spec.moe.intermediate_size)
        if spec.moe.shared_intermediate_size:
            said.say("shared_size", spec.moe.shared_intermediate_size)
    _refuse_model(said, spec)


def _position(said: Said, spec: ModelSpec) -> None:
    words = {"rotary": "rope", "learned": "learned_absolute", "none": "none"}
    if spec.position.kind not in words:
        said.refuse(f"position {spec.position.kind} has no flag")
        return
    said.say("position", words[spec.position.kind])
    if spec.position.kind == "rotary":
        said.say("theta", int(spec.position.theta))
        if spec.position.rotary_fraction != 1:
            said.say("rotary_fraction", spec.position.rotary_fraction)


def _refuse_model(said: Said, spec: ModelSpec) -> None:
    """What a model may have and `pretrain_gpt.py` does not say in flags that are written here."""
    attention, moe = spec.attention, spec.moe
    said.refuse_if(attention.kind == "latent", "flags of multi-head latent attention are not written here; add them")
    said.refuse_if(attention.window_pattern, "flags of windowed attention are not written here; add them")
    said.refuse_if(attention.query_key_norm == "full", "a norm over all heads of query and key has no flag")
    said.refuse_if(attention.logit_soft_cap or spec.final_logit_soft_cap, "soft caps of scores or logits have no flag")
    said.refuse_if(spec.parallel, "attention and MLP in parallel have no flag")
    said.refuse_if(spec.norm.placement != "pre", f"norms in place {spec.norm.placement} have no flag")
    said.refuse_if(spec.num_prediction_layers, "flags of further prediction layers are not written here; add them")
    said.refuse_if(
        moe is not None and (moe.num_leading_dense_layers or moe.every > 1),
        "flags of dense layers between mixtures are not written here; add --moe-layer-freq",
    )
