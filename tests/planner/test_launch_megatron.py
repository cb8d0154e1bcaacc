"""Flags of Megatron-LM read back by the meanings that its argument parser gives them."""

import argparse
import re
from dataclasses import replace

import pytest
from launched import CLUSTER, DENSE, after, comparable, drawn

from torchledger.planner.launch import launch
from torchledger.spec import MoeSpec, Recipe, Strategy

#: Flags of Megatron-LM's argument parser with their defaults: whole numbers, words, and those that stand alone.
MEGATRON = {
    "tensor-model-parallel-size": 1,
    "pipeline-model-parallel-size": 1,
    "num-virtual-stages-per-pipeline-rank": 1,
    "microbatch-group-size-per-virtual-pipeline-stage": 0,
    "context-parallel-size": 1,
    "expert-model-parallel-size": 1,
    "expert-tensor-parallel-size": 0,
    "num-distributed-optimizer-instances": 1,
    "micro-batch-size": 0,
    "global-batch-size": 0,
    "seq-length": 0,
    "recompute-num-layers": 0,
    "cp-comm-type": "p2p",
    "data-parallel-sharding-strategy": "optim",
    "recompute-granularity": "none",
    "recompute-method": "",
    "pipeline-model-parallel-layout": "",
    "optimizer": "adam",
    "attention-backend": "auto",
    "fp8-format": "",
    "ckpt-format": "",
    "sequence-parallel": False,
    "use-distributed-optimizer": False,
    "use-megatron-fsdp": False,
    "overlap-grad-reduce": False,
    "overlap-param-gather": False,
    "tp-comm-overlap": False,
    "bf16": False,
    "fp16": False,
}


def parsed_megatron(said, spec):
    """The flags by name, as Megatron-LM's argument parser reads them."""
    parser = argparse.ArgumentParser()
    for name, default in MEGATRON.items():
        if default is False:
            parser.add_argument(f"--{name}", action="store_true")
        else:
            parser.add_argument(f"--{name}", type=type(default), default=default)
    read, model = parser.parse_known_args(after(said.words, "pretrain_gpt.py"))
    assert ["--num-layers", str(spec.num_layers)] == model[:2]
    return read


def read_megatron(said, spec, num_ranks):
    """What Megatron-LM would make of the flags, by the meanings that its argument parser gives them."""
    read = parsed_megatron(said, spec)
    ranks = read.tensor_model_parallel_size * read.pipeline_model_parallel_size * read.context_parallel_size
    dp = num_ranks // ranks
    level = 0
    if read.use_distributed_optimizer:
        names = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
        level = names[read.data_parallel_sharding_strategy] if read.use_megatron_fsdp else 1
    instances = read.num_distributed_optimizer_instances
    chunks = read.num_virtual_stages_per_pipeline_rank
    stage_layers = ()
    if read.pipeline_model_parallel_layout:
        parts = read.pipeline_model_parallel_layout.split("|")
        stage_layers = tuple(sum(map(int, re.findall(r"t\*(\d+)", part))) for part in parts)
        chunks = len(stage_layers) // read.pipeline_model_parallel_size
    strategy = Strategy(
        stack="megatron",
        data_parallel=dp,
        shard_level=level,
        shard_group=dp // instances if instances > 1 else 0,
        tensor_parallel=read.tensor_model_parallel_size,
        sequence_parallel=read.sequence_parallel,
        pipeline_parallel=read.pipeline_model_parallel_size,
        schedule="interleaved" if chunks > 1 else "1f1b",
        virtual_stages=chunks,
        stage_layers=stage_layers,
        context_parallel=read.context_parallel_size,
        context_kind={"p2p": "ring", "allgather": "all-gather", "a2a": "ulysses"}[read.cp_comm_type],
        expert_parallel=read.expert_model_parallel_size,
        expert_tensor_parallel=read.expert_tensor_parallel_size,
        micro_batch_size=read.micro_batch_size,
        overlap_data=read.overlap_grad_reduce,
        overlap_tensor=read.tp_comm_overlap,
    )
    assert read.overlap_param_gather == (read.overlap_grad_reduce and level > 0)
    return strategy, (read.global_batch_size, read.seq_length, read.recompute_granularity, read.optimizer)


def test_megatron_flags_read_back_as_the_layout():
    """Where nothing is refused, the flags mean the layout that was planned, batch, recompute and optimizer included."""
    num_exact = 0
    for seed in range(200):
        spec, recipe, strategy = drawn(seed)
        said = launch(spec, recipe, strategy, CLUSTER, "megatron")
        unknown = strategy.schedule in {"gpipe", "zero-bubble"} or (strategy.shard_level == 3 and not strategy.reshard)
        unknown |= strategy.shard_level > 1 and recipe.optimizer.kind == "lion"  # not of Megatron-FSDP
        unknown |= strategy.overlap_tensor and not strategy.sequence_parallel
        unknown |= spec.moe is not None and strategy.tensor_parallel > 1 and not strategy.sequence_parallel
        assert said.is_exact != unknown, (strategy, said.cannot)
        if said.is_exact:
            num_exact += 1
            read, asked = read_megatron(said, spec, strategy.num_ranks)
            assert comparable(read) == comparable(strategy)
            optimizer = {"adamw": "adam", "lion": "lion"}[recipe.optimizer.kind]
            assert asked == (recipe.batch_size, recipe.sequence_length, recipe.recompute, optimizer)
    assert num_exact > 60


def test_uneven_stages_are_a_layout_of_megatron():
    """24 layers over 2 · 2 chunks of 5, 7, 7, 5 are said chunk by chunk in the order of the model."""
    strategy = Strategy(
        stack="megatron",
        pipeline_parallel=2,
        schedule="interleaved",
        virtual_stages=2,
        stage_layers=(5, 7, 7, 5),
        micro_batch_size=1,
    )
    said = launch(DENSE, Recipe(batch_size=8, sequence_length=2048, precision="bf16"), strategy, CLUSTER, "megatron")
    assert said.is_exact
    assert "Et*5|t*7|t*7|t*5L" in said.words
    assert comparable(read_megatron(said, DENSE, 2)[0]) == strategy


@pytest.mark.parametrize(("number", "group"), [(8, 0), (9, 5), (6, 6)])
def test_megatron_is_told_groups_of_micro_batches_that_are_not_the_stages(number, group):
    """Of 4 stages 8 micro-batches run in groups of 4, which is the default; 9 in 5 and 4, 6 in one group."""
    strategy = Strategy(
        stack="megatron", pipeline_parallel=4, schedule="interleaved", virtual_stages=2, micro_batch_size=1
    )
    recipe = Recipe(batch_size=number, sequence_length=2048, precision="bf16")
    said = launch(DENSE, recipe, strategy, CLUSTER, "megatron")
    assert said.is_exact
    assert parsed_megatron(said, DENSE).microbatch_group_size_per_virtual_pipeline_stage == group


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("megatron", ()),
        ("megatron-deepep", ("--moe-token-dispatcher-type", "flex", "--moe-enable-deepep")),
        ("megatron-a2a-overlap", ("--moe-token-dispatcher-type", "alltoall", "--overlap-moe-expert-parallel-comm")),
    ],
)
def test_how_tokens_reach_their_experts_is_said(name, flags):
    """The flags of the dispatcher that a stack is named after; Megatron-Core's own needs none."""
    mixture = replace(DENSE, moe=MoeSpec(8, 2, 128))
    strategy = Strategy(stack=name, data_parallel=CLUSTER.num_chips, expert_parallel=8, micro_batch_size=1)
    recipe = Recipe(batch_size=CLUSTER.num_chips, sequence_length=64, precision="bf16")
    said = launch(mixture, recipe, strategy, CLUSTER, "megatron").words
    found = [word for word in said if word in flags or "dispatcher" in word or "deepep" in word]
    assert tuple(found) == flags


@pytest.mark.parametrize(
    ("level", "precision", "name", "more"),
    [
        (0, "bf16", "no_shard", []),
        (1, "bf16", "optim", []),
        (2, "fp8", "optim_grads", ["--fp8-param-gather"]),
        (3, "bf16", "optim_grads_params", ["--init-model-with-meta-device"]),
        (3, "mxfp8", "optim_grads_params", ["--fp8-param-gather", "--init-model-with-meta-device"]),
    ],
)
def test_megatron_fsdp_is_told_its_level_buffers_and_formats(level, precision, name, more):
    """What the stack's rules have is said: the strategy, two layers' buffers, no fused gradients, FP8 weights."""
    strategy = Strategy(stack="megatron-fsdp", data_parallel=4, shard_level=level, micro_batch_size=1)
    recipe = Recipe(batch_size=8, sequence_length=2048, precision=precision)
    said = launch(DENSE, recipe, strategy, CLUSTER, "megatron")
    assert said.is_exact
    assert comparable(read_megatron(said, DENSE, 4)[0]) == replace(strategy, stack="megatron")
    read = parsed_megatron(said, DENSE)
    assert (read.use_megatron_fsdp, read.data_parallel_sharding_strategy, read.ckpt_format) == (
        True,
        name,
        "fsdp_dtensor",
    )
    assert list(said.words)[-2 - len(more) :] == ["--fsdp-double-buffer", "--no-gradient-accumulation-fusion", *more]
    assert any("CUDA_DEVICE_MAX_CONNECTIONS" in note for note in said.notes)


def test_megatron_without_fsdp_keeps_fp32_gradients():
    """Buffers of layers and FP8 weights are no flags of Megatron's own distributed optimizer, and its note is told."""
    strategy = Strategy(stack="megatron", data_parallel=4, shard_level=1, micro_batch_size=1)
    recipe = Recipe(batch_size=8, sequence_length=2048, precision="fp8")
    said = launch(DENSE, recipe, strategy, CLUSTER, "megatron")
    assert not {"--use-megatron-fsdp", "--fsdp-double-buffer", "--fp8-param-gather"} & set(said.words)
    assert any("FP32 main gradients" in note for note in said.notes)
