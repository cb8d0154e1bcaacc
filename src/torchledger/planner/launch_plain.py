"""A layout for stacks without parallel models of their own: FSDP2 under torchrun, DeepSpeed, our own train."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import fields, replace
from typing import Any

from torchledger.planner.launch_said import Facts, Said, refuse_common, refuse_unless_alone
from torchledger.planner.shard import micro_batch_size, num_micro_batches
from torchledger.spec import ModelSpec, OptimizerSpec, Recipe, Strategy

_FSDP2 = '''\
"""Shards a model as planned: {title}."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
{imports}
MICRO_BATCH_SIZE = {micro_batch_size}
NUM_MICRO_BATCHES = {num_micro_batches}


def shard_model(model, layers):
    """Shard each of the layers, then what is left of the model."""
    mesh = init_device_mesh("cuda", {mesh})
    policy = MixedPrecisionPolicy(param_dtype={param_dtype}, reduce_dtype=torch.float32)
{recompute}    for layer in layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward={reshard})
    return fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward={reshard})
'''
#: Torch wraps what lies below the module that it is given, and puts the wrapper in its place there.
_RECOMPUTE = """\
    chosen = list(layers)
    apply_activation_checkpointing(model, check_fn=lambda each: any(each is layer for layer in chosen))
    layers = [each for each in model.modules() if isinstance(each, CheckpointWrapper)]
    if len(layers) != len(chosen):
        raise ValueError(f"{len(chosen)} layers were given and {len(layers)} are below the model to run again")
"""
_DTYPES = {"fp32": "torch.float32", "bf16": "torch.bfloat16", "fp16": "torch.float16"}


def fsdp2(spec: ModelSpec, recipe: Recipe, strategy: Strategy, facts: Facts) -> Said:
    """A module that shards the user's model with `fully_shard`; the command starts the user's own script."""
    said = Said(facts)
    refuse_unless_alone(said, strategy)
    refuse_common(said, recipe)
    level, ranks = strategy.shard_level, strategy.data_parallel
    said.refuse_if(level != 3, f"fully_shard shards parameters, gradients and state together, not level {level}")
    said.refuse_if(strategy.prefetch != 1, "prefetching further than one layer is set layer by layer in code")
    said.refuse_if(recipe.precision not in _DTYPES, f"precision {recipe.precision} is not a policy of fully_shard")
    said.refuse_if(
        recipe.recompute == "selective", "selective recompute is a policy of operators in the model's own code"
    )
    said.refuse_if(recipe.recompute_layers, "recompute of some layers only is up to the model's own code")
    group = strategy.shard_group or ranks
    mesh = f"({ranks},)" if group == ranks else f'({ranks // group}, {group}), mesh_dim_names=("replicate", "shard")'
    full = recipe.recompute == "full"
    wrapper = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"
    said.files["shard_model.py"] = _FSDP2.format(
        title=f"{spec.name} on {ranks} ranks",
        imports=f"from {wrapper} import CheckpointWrapper, apply_activation_checkpointing\n" if full else "",
        micro_batch_size=micro_batch_size(recipe, strategy),
        num_micro_batches=num_micro_batches(recipe, strategy),
        mesh=mesh,
        param_dtype=_DTYPES.get(recipe.precision, "torch.bfloat16"),
        recompute=_RECOMPUTE if full else "",
        reshard=strategy.reshard,
    )
    return said


def deepspeed(_spec: ModelSpec, recipe: Recipe, strategy: Strategy, facts: Facts) -> Said:
    """A JSON configuration; the command starts the user's own script with it."""
    said = Said(facts)
    refuse_common(said, recipe, offloads_optimizer=True)
    for name, ranks in (("pipeline", strategy.pipeline_parallel), ("context", strategy.context_parallel)):
        said.refuse_if(ranks > 1, f"{name} parallel over {ranks} ranks is part of the model's own code, no setting")
    said.refuse_if(strategy.expert_parallel > 1, "expert parallelism is part of the model's own code")
    said.refuse_if(strategy.sequence_parallel, "its automatic tensor parallelism has no sequence parallelism")
    said.refuse_if(recipe.recompute != "none", f"{recipe.recompute} recompute is called by the model's own code")
    zero: dict[str, Any] = {"stage": strategy.shard_level, "overlap_comm": strategy.overlap_data}
    if strategy.shard_group and strategy.shard_group != strategy.data_parallel:
        if strategy.shard_level == 3:
            zero["mics_shard_size"] = strategy.shard_group
        else:
            said.refuse(f"groups of {strategy.shard_group} ranks shard at stage 3 only (MiCS)")
    said.refuse_if(strategy.shard_level == 3 and not strategy.reshard, "stage 3 gives gathered weights back")
    if recipe.offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    settings: dict[str, Any] = {
        "train_batch_size": recipe.batch_size,
        "train_micro_batch_size_per_gpu": micro_batch_size(recipe, strategy),
        "gradient_accumulation_steps": num_micro_batches(recipe, strategy),
        "zero_optimization": zero,
    }
    match recipe.precision:
        case "fp32":
            pass
        case "bf16-master" | "fp16-master":
            settings[recipe.precision.partition("-")[0]] = {"enabled": True}
        case "bf16" | "fp16":
            settings["torch_autocast"] = {
                "enabled": True,
                "dtype": {"bf16": "bfloat16", "fp16": "float16"}[recipe.precision],
            }
        case _:
            said.refuse(f"precision {recipe.precision} has no setting")
    if strategy.tensor_parallel > 1:
        settings["tensor_parallel"] = {"autotp_size": strategy.tensor_parallel}
        said.refuse_if(not strategy.vocab_parallel, "embedding and head follow the model's own plan")
    said.files["deepspeed.json"] = json.dumps(settings, indent=2) + "\n"
    return said


def torchledger(_spec: ModelSpec, recipe: Recipe, strategy: Strategy, facts: Facts) -> Said:
    """Settings of the recipe and the layout over a run's TOML."""
    said = Said(facts)
    for name in ("pipeline", "context", "expert"):
        ranks = getattr(strategy, f"{name}_parallel")
        said.refuse_if(ranks > 1, f"train has no {name} parallelism, over {ranks} ranks or any")
    level = strategy.shard_level
    said.refuse_if(level in {1, 2}, f"train replicates (level 0) or shards all (level 3), and has no level {level}")
    said.refuse_if(strategy.overlap_tensor, "train cuts up no tensor parallel collective")
    said.refuse_if(recipe.precision in _UNTRAINED, f"train has no precision {recipe.precision}")
    said.refuse_if(recipe.offload_activations, "train keeps no activations in host memory")
    said.refuse_if(recipe.offload_optimizer, "train moves no optimizer to host memory")
    recipe = replace(recipe, accumulation_steps=num_micro_batches(recipe, strategy))
    own = [each.name for each in fields(Recipe) if each.name != "optimizer"]
    _say_settings(said, "recipe", (recipe, Recipe()), own, _ALWAYS)
    kinds = [each.name for each in fields(OptimizerSpec)]
    _say_settings(said, "recipe.optimizer", (recipe.optimizer, OptimizerSpec()), kinds, {"kind"})
    _say_settings(said, "strategy", (strategy, Strategy()), _LAYOUT)
    return said


def _say_settings(
    said: Said, path: str, pair: tuple[Any, Any], names: Iterable[str], always: Collection[str] = ()
) -> None:
    """Say each of the fields that is not as usual, the second of the pair, or always is said: as `train` reads it."""
    asked, usual = pair
    for name in names:
        value = getattr(asked, name)
        if name in always or value != getattr(usual, name):
            text = value if isinstance(value, str) else json.dumps(value)
            said.flags += ["--set", f"{path}.{name}={text}"]


#: Formats that the planner knows and the trainer does not.
_UNTRAINED = frozenset({"fp16-master", "mxfp8", "nvfp4"})

#: What is said of a recipe whatever it is, because a run's own file may say something else.
_ALWAYS = frozenset({"batch_size", "accumulation_steps", "sequence_length", "precision", "recompute", "attention"})

#: What a run's TOML says of a layout that train can run; micro-batches are said as accumulation steps.
_LAYOUT = ("data_parallel", "shard_level", "shard_group", "reshard", "tensor_parallel", "sequence_parallel")
