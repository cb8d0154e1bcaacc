"""What data parallel ranks exchange: levels, groups, formats, and what of it shows."""

from __future__ import annotations

import pytest

from torchledger.machine import parse_cluster
from torchledger.planner.block import pieces
from torchledger.planner.data_parallel import data_rules, exposed, gather_s, gathered_bytes, reduce_s
from torchledger.planner.fabric import Fabric
from torchledger.planner.stack import stack
from torchledger.spec import Recipe, Strategy, presets


def test_what_overlaps_shows_where_it_is_longer_and_by_its_drag() -> None:
    assert exposed(3.0, 2.0, 0.1, overlaps=True) == pytest.approx(3 - 2 + 0.1 * 2)
    assert exposed(1.0, 2.0, 0.1, overlaps=True) == pytest.approx(0.1 * 1)
    assert exposed(1.0, 2.0, 0.1, overlaps=False) == 1.0


def test_context_ranks_share_the_weights_too() -> None:
    """Gradients are reduced over data · context ranks, tensor parallel ranks apart."""
    strategy = Strategy(stack="megatron", data_parallel=8, context_parallel=2, tensor_parallel=4, shard_level=1)
    rules = data_rules(Recipe(precision="bf16"), strategy, stack("megatron"), "bf16-master")
    assert rules.dense == (16, 4)
    assert rules.replicas == (1, 64)


def test_experts_are_shared_by_fewer_ranks() -> None:
    strategy = Strategy(stack="megatron", data_parallel=16, expert_parallel=8, tensor_parallel=2, shard_level=1)
    rules = data_rules(Recipe(precision="bf16"), strategy, stack("megatron"), "bf16-master")
    assert rules.expert == (2, 16)


def test_shard_groups_repeat_over_replicas() -> None:
    """HSDP: 32 ranks in groups of 8 have 4 replicas, 8 ranks apart."""
    strategy = Strategy(stack="fsdp2", data_parallel=32, shard_level=3, shard_group=8)
    rules = data_rules(Recipe(precision="bf16"), strategy, stack("fsdp2"), "bf16")
    assert rules.dense == (8, 1)
    assert rules.replicas == (4, 8)


@pytest.mark.parametrize(
    ("name", "asked", "meant", "level", "expected"),
    [
        ("megatron", "bf16", "bf16-master", 1, (2, 4)),  # FP32 main gradients
        ("megatron-fsdp", "bf16", "bf16-master", 1, (2, 2)),  # gradients in the weights' format
        ("megatron-fsdp", "fp8", "fp8", 3, (1, 2)),  # --fp8-param-gather
        ("fsdp1", "bf16", "bf16", 3, (2, 2)),  # reduced in the compute format
        ("fsdp2", "bf16", "bf16", 3, (2, 4)),  # reduced in FP32
        ("torchledger", "fp32", "fp32", 0, (4, 4)),
        ("torchledger", "bf16", "bf16", 0, (4, 4)),  # DDP under autocast: FP32 gradients
    ],
)
def test_formats_are_the_stacks(name: str, asked: str, meant: str, level: int, expected: tuple[int, int]) -> None:
    """Bytes of an element of the weights that are gathered and of the gradients that are reduced."""
    strategy = Strategy(stack=name, data_parallel=8, shard_level=level)  # type: ignore[arg-type]
    rules = data_rules(Recipe(precision=asked), strategy, stack(name), meant)  # type: ignore[arg-type]
    assert (rules.weight_bytes, rules.gradient_bytes) == expected


@pytest.mark.parametrize(
    ("name", "level", "batch", "expected"),
    [
        ("megatron", 1, 64, ((2, 4), 0)),  # the products of the weight gradients add them
        ("megatron-2021", 0, 64, ((2, 4), 8)),  # every micro-batch's to the FP32 buffer
        ("deepspeed", 1, 64, ((2, 2), 7)),  # autograd adds to what is there: not the first
        ("deepspeed", 1, 8, ((2, 2), 0)),
        ("fsdp2", 3, 64, ((4, 4), 7)),  # shards that were reduced
        ("torchledger", 0, 64, ((4, 4), 7)),
        ("megatron-fsdp", 3, 64, ((2, 2), 7)),  # shards that were reduced
    ],
)
def test_gradients_of_micro_batches_add_up(
    name: str, level: int, batch: int, expected: tuple[tuple[int, int], int]
) -> None:
    """Bytes of an element that is added and of what it is added to, and how often in a step of 8 micro-batches."""
    strategy = Strategy(stack=name, data_parallel=8, shard_level=level, micro_batch_size=1)
    own = stack(name)
    rules = data_rules(Recipe(precision="bf16", batch_size=batch), strategy, own, own.precision("bf16"))
    assert (rules.added_bytes, rules.additions) == expected


@pytest.mark.parametrize(("precision", "layer"), [("bf16-master", 2), ("fp8", 1), ("mxfp8", 1), ("nvfp4", 2)])
def test_ends_are_not_gathered_in_the_format_of_layers(precision: str, layer: int) -> None:
    """With --fp8-param-gather a layer's weights are gathered in 1 byte, embedding and head in 2."""
    strategy = Strategy(stack="megatron-fsdp", data_parallel=8, shard_level=3, micro_batch_size=1)
    recipe = Recipe(precision=precision, batch_size=8, sequence_length=1024)  # type: ignore[arg-type]
    own = stack("megatron-fsdp")
    rules = data_rules(recipe, strategy, own, precision)
    found = [piece.block for piece in pieces(presets.get("llama-3-8b"), recipe, strategy, own)]
    widths = {block.kind: gathered_bytes(block, rules) for block in found}
    assert widths == {"embedding": 2, "layer": layer, "head": 2}


@pytest.mark.parametrize(("level", "times"), [(0, False), (1, False), (2, True), (3, True)])
def test_shards_of_gradients_are_reduced_for_every_micro_batch(level: int, times: bool) -> None:
    """DeepSpeed stage_1_and_2.py: with partitioned gradients every backward pass reduces, not the last alone."""
    strategy = Strategy(stack="deepspeed", data_parallel=8, shard_level=level)
    assert data_rules(Recipe(precision="bf16"), strategy, stack("deepspeed"), "bf16-master").reduces_each is times


def test_experts_of_a_shard_group_are_shared_inside_it() -> None:
    """HSDP: 32 ranks in groups of 8, experts over 4 of each: 2 ranks share one, 4 replicas repeat it."""
    strategy = Strategy(stack="torchtitan", data_parallel=32, shard_level=3, shard_group=8, expert_parallel=4)
    rules = data_rules(Recipe(precision="bf16"), strategy, stack("torchtitan"), "bf16")
    assert (rules.dense, rules.expert, rules.replicas) == ((8, 1), (2, 4), (4, 8))


@pytest.mark.parametrize(("level", "expected"), [(0, ((4, 1), (2, 4))), (1, ((4, 1), (2, 4)))])
def test_ranks_of_a_bidirectional_pipeline_repeat_each_other(
    level: int, expected: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    """DualPipe holds every part twice (arXiv:2412.19437, table 2): beside 4 replicas are 2 ranks of a pipeline."""
    strategy = Strategy(data_parallel=4, pipeline_parallel=8, schedule="dualpipe", shard_level=level)
    rules = data_rules(Recipe(precision="bf16"), strategy, stack("torchtitan"), "bf16")
    assert (rules.dense, rules.replicas) == expected


@pytest.mark.parametrize(
    ("level", "gathered", "reduced"), [(0, 7 / 8, 2 * 7 / 8), (1, 7 / 8, 7 / 8), (3, 7 / 8, 7 / 8)]
)
def test_what_crosses_the_link_is_the_rings_share(level: int, gathered: float, reduced: float) -> None:
    """A ring of 8 sends 7/8 of what it gathers or scatters, twice that of what it sums on every rank."""
    strategy = Strategy(stack="fsdp2", data_parallel=8, shard_level=level, micro_batch_size=1)  # type: ignore[arg-type]
    recipe = Recipe(batch_size=8, sequence_length=1024, precision="bf16")
    (layer,) = (
        piece.block
        for piece in pieces(presets.get("llama-3-8b"), recipe, strategy, stack("fsdp2"))
        if piece.block.kind == "layer"
    )
    rules = data_rules(recipe, strategy, stack("fsdp2"), "bf16")._replace(weight_bytes=2, gradient_bytes=4)
    fabric = Fabric.of(parse_cluster("a100x8"), link_share=0.8, link_latency_s=1e-12)
    rate = 0.8 * 300e9
    assert gather_s(layer, rules, fabric) == pytest.approx(gathered * layer.num_parameters * 2 / rate, rel=0.01)
    assert reduce_s(layer, rules, fabric) == pytest.approx(reduced * layer.num_trainable * 4 / rate, rel=0.01)
