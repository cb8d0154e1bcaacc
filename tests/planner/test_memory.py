"""Memory of a stage: bytes per parameter against the papers, moments by hand, three measures of one run."""

import timeit

import pytest

from torchledger.planner.memory import stage_memory
from torchledger.planner.outcome import PARTS
from torchledger.planner.stack import stack
from torchledger.planner.totals import StageTotals
from torchledger.spec import OptimizerSpec, Recipe, Strategy

GB = 10**9
NOTHING = StageTotals(*[0] * 19)


def stage(**known):
    """A stage of which only what is named is not zero; all parameters are trained unless said otherwise."""
    known.setdefault("num_trainable", known.get("num_parameters", 0))
    known.setdefault("num_trainable_expert", known.get("num_expert_parameters", 0))
    return NOTHING._replace(**known)


def memory(totals, name="deepspeed", precision="bf16", *, recipe=None, capacity=None, **layout):
    recipe = Recipe(precision=precision) if recipe is None else recipe
    return stage_memory(totals, recipe, Strategy(stack=name, **layout), stack(name), capacity_bytes=capacity)


def state(found):
    names = ("parameters", "gradients", "master weights", "optimizer state")
    return sum(found.parts[name] for name in names)


@pytest.mark.parametrize(
    ("level", "gigabytes"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.88)], ids=["baseline", "Pos", "Pos+g", "Pos+g+p"]
)
def test_zero_figure_1(level, gigabytes):
    """7.5B parameters on 64 ranks: 120, 31.4, 16.6 and 1.9 GB of model state (ZeRO, arXiv:1910.02054, figure 1)."""
    found = memory(stage(num_parameters=7_500_000_000), shard_level=level, data_parallel=64)
    assert state(found) / GB == pytest.approx(gigabytes, rel=0.003)


@pytest.mark.parametrize(
    ("precision", "level", "bytes_per_parameter"),
    [("bf16", 0, 18), ("bf16", 1, 6 + 12 / 8), ("fp32", 0, 16), ("fp32", 1, 8 + 8 / 8), ("fp16", 1, 4 + 12 / 8)],
)
def test_megatron_bytes_per_parameter(precision, level, bytes_per_parameter):
    """Megatron-Core's own table: BF16 with FP32 gradients 18 or 6 + 12/d, FP32 16 or 8 + 8/d bytes.

    Its 4 + 16/d of FP16 has the 4/d of gradients that only the optimizer's step makes; they are no state.
    """
    totals = stage(num_parameters=1_000_000)
    found = memory(totals, "megatron", precision, shard_level=level, data_parallel=8)
    assert state(found) == bytes_per_parameter * 1_000_000


def test_the_steps_copies_are_a_moment_of_their_own():
    """FP16 in Megatron-Core copies the shard's gradients to FP32: 4/d bytes, where no activations are left."""
    totals = stage(num_parameters=8_000_000)
    found = memory(totals, "megatron", "fp16", shard_level=1, data_parallel=8)
    assert found.parts["temporaries"] == 4 * 1_000_000
    with_more = memory(totals._replace(activation_bytes=10_000_000), "megatron", "fp16", shard_level=1, data_parallel=8)
    assert with_more.parts["temporaries"] == 0
    assert with_more.parts["fragmentation"] == 4 * 1_000_000  # what the activations left is in smaller segments


def test_hybrid_sharding_shards_over_its_group():
    """With groups of 8 of 64 replicas a rank holds an eighth; context parallel ranks share as well."""
    totals = stage(num_parameters=64_000_000)
    whole = memory(totals, "fsdp2", shard_level=3, data_parallel=64)
    group = memory(totals, "fsdp2", shard_level=3, data_parallel=64, shard_group=8)
    context = memory(totals, "fsdp2", shard_level=3, data_parallel=32, context_parallel=2)
    assert state(whole) == 16 * 1_000_000
    assert state(group) == 8 * state(whole)
    assert state(context) == state(whole)


def test_experts_are_sharded_over_fewer_ranks():
    """A rank's experts are shared by data parallel ranks over expert parallel ones: 64 / 16 = 4."""
    found = memory(
        stage(num_parameters=64_000_000, num_expert_parameters=4_000_000),
        "megatron",
        shard_level=1,
        data_parallel=64,
        expert_parallel=16,
    )
    assert state(found) == 6 * (64_000_000 + 4_000_000) + 12 * (64_000_000 // 64 + 4_000_000 // 4)


def test_frozen_parameters_have_no_state():
    """Without gradients there is the weight alone."""
    found = memory(stage(num_parameters=1000, num_trainable=0), "megatron")
    assert state(found) == 2 * 1000


@pytest.mark.parametrize(
    ("kind", "bytes_per_parameter"), [("adamw", 8), ("lion", 4), ("sgd", 0), ("adafactor", 0), ("adamw-8bit", 2)]
)
def test_optimizers(kind, bytes_per_parameter):
    """AdamW has two FP32 moments, Lion one, plain SGD none, 8-bit AdamW two bytes and scales."""
    recipe = Recipe(precision="fp32", optimizer=OptimizerSpec(kind=kind))
    found = memory(stage(num_parameters=1_000_000), "fsdp2", recipe=recipe)
    assert found.parts["optimizer state"] == pytest.approx(bytes_per_parameter * 1_000_000, rel=0.002)


def test_muon_keeps_two_moments_of_embedding_and_head():
    """Muon has one moment of matrices and AdamW's two of embedding and head."""
    recipe = Recipe(precision="fp32", optimizer=OptimizerSpec(kind="muon"))
    found = memory(stage(num_parameters=1_000_000, num_ends=200_000), "fsdp2", recipe=recipe)
    assert found.parts["optimizer state"] == 4 * 800_000 + 8 * 200_000


def test_level_3_gathers_layer_by_layer():
    """FSDP2 in BF16: a layer and the next gathered in 2 bytes, its gradient in 2 and its FP32 copy in 4."""
    totals = stage(num_parameters=10_000_000, largest_layer=1_000_000)
    found = memory(totals, "fsdp2", shard_level=3, data_parallel=10)
    assert found.parts["gathered weights"] == 2 * 2_000_000 + (2 + 4) * 1_000_000
    assert found.parts["fragmentation"] == 2 * 1_000_000  # the pool of the stream that gathers


def test_weights_kept_for_the_backward_pass_are_gathered_whole():
    """Without reshard all layers are gathered at once."""
    totals = stage(num_parameters=10_000_000, largest_layer=1_000_000)
    found = memory(totals, "fsdp2", shard_level=3, data_parallel=10, reshard=False)
    assert found.parts["gathered weights"] == 2 * 10_000_000 + (2 + 4) * 1_000_000


def test_ends_in_the_root_are_there_for_both_passes_and_their_gradients_add_up():
    """Autocast gathers FP32: the root's weights always, and by moment what is beside them.

    Where prediction layers read both ends again, each has a gradient that waits for another: of the head (2 M) that is
    its gradient so far, the new one, and the product that this is cast from, in 2 bytes.
    """
    ends = {"embedding": 1_000_000, "head": 2_000_000, "num_ends": 3_000_000, "root": 3_000_000}
    totals = stage(num_parameters=10_000_000, largest_layer=500_000, root_added=(1_000_000, 2_000_000), **ends)

    def gathered(**known):
        return memory(totals._replace(**known), "torchledger", shard_level=3, data_parallel=10).parts[
            "gathered weights"
        ]

    assert gathered() == 4 * 3_000_000 + (4 + 4 + 2) * 2_000_000
    assert gathered(head_bytes=100 * 10**6) == 4 * 3_000_000  # at the loss no gradient is there yet
    # in a layer's backward pass: both ends' gradients, this layer's weights and the next one's, its gradient
    assert gathered(layer_bytes=100 * 10**6) == 4 * 3_000_000 + 4 * 3_000_000 + 4 * (2 + 1) * 500_000
    # with nothing read again the head's gradient waits alone, and the embedding's comes last of all
    assert gathered(root_added=(0, 0), largest_layer=0) == (4 + 4) * 3_000_000
    assert gathered(root_added=(0, 0), layer_bytes=100 * 10**6) == 4 * 3_000_000 + 4 * 2_000_000 + 4 * 3 * 500_000


def test_megatron_fsdp_by_hand():
    """60 M of layers in FP8 and 4 M of ends in BF16 over 8 ranks, buffers of two layers and whole ends all the time.

    A layer of 1 M has 1 byte of weights and 2 of gradients in each of two buffers; a fresh gradient of a matrix is
    beside them until it is copied, the embedding's is at the end of the pass.
    """
    ends = {"embedding": 3_000_000, "head": 1_000_000, "num_ends": 4_000_000}
    totals = stage(num_parameters=64_000_000, largest_layer=1_000_000, largest_tensor=300_000, **ends)
    layout = {"shard_level": 3, "data_parallel": 8}
    at_layer = memory(totals._replace(layer_bytes=10**8), "megatron-fsdp", "fp8", **layout)
    assert at_layer.parts["parameters"] == 1 * 60_000_000 // 8 + 2 * 4_000_000 // 8
    assert at_layer.parts["gradients"] == 2 * 64_000_000 // 8
    assert at_layer.parts["master weights"] == 4 * 64_000_000 // 8
    assert at_layer.parts["optimizer state"] == 8 * 64_000_000 // 8
    stays = 2 * (1 + 2) * 1_000_000 + 2 * 4_000_000
    assert at_layer.parts["gathered weights"] == stays + 2 * 300_000
    at_loss = memory(totals._replace(head_bytes=10**8), "megatron-fsdp", "fp8", **layout)
    assert at_loss.parts["gathered weights"] == stays
    at_end = memory(totals, "megatron-fsdp", "fp8", shard_level=3, data_parallel=64)
    assert at_end.parts["gathered weights"] == stays + 2 * 3_000_000
    assert memory(totals, "megatron-fsdp", "fp8", **layout, shard_group=2).parts["gradients"] == 2 * 64_000_000 // 2


def test_level_2_of_megatron_fsdp_has_buffers_of_gradients_alone():
    """Weights are whole; two layers' gradients of 2 bytes have buffers, and a matrix's comes before it is copied."""
    totals = stage(num_parameters=10_000_000, largest_layer=1_000_000, largest_tensor=300_000, layer_bytes=10**8)
    found = memory(totals, "megatron-fsdp", shard_level=2, data_parallel=10)
    assert found.parts["parameters"] == 2 * 10_000_000
    assert found.parts["gradients"] == 2 * 1_000_000
    assert found.parts["temporaries"] == 10**8 + 2 * 2 * 1_000_000 + 2 * 300_000
    alone = memory(totals, "megatron-fsdp", shard_level=1, data_parallel=10)
    assert alone.parts["temporaries"] == 10**8 + 2 * 300_000


def test_what_stays_is_there_in_the_optimizers_step():
    """Of two ranks each casts the gradients of 32 M to FP32 beside the buffers, which are larger than the pass."""
    totals = stage(num_parameters=64_000_000, largest_layer=1_000_000, largest_tensor=300_000)
    found = memory(totals, "megatron-fsdp", shard_level=3, data_parallel=2)
    stays = 2 * (2 + 2) * 1_000_000
    assert found.parts["gathered weights"] == stays + 2 * 300_000
    assert found.parts["gathered weights"] + found.parts["temporaries"] == 4 * 32_000_000 + stays


def test_fp32_alone_gathers_nothing():
    """One rank that computes in the format that it stores has nothing to gather."""
    found = memory(stage(num_parameters=10_000_000, largest_layer=1_000_000), "fsdp2", "fp32", shard_level=3)
    assert found.parts["gathered weights"] == 4 * 0
    assert found.parts["fragmentation"] == 0


def test_the_worst_of_loss_layer_and_embedding_is_the_peak():
    """The loss's moment has logits and no recomputed layer, a layer's the other way round: the larger one counts."""
    totals = stage(
        activation_bytes=100 * 2**20, head_bytes=30 * 2**20, layer_bytes=20 * 2**20, recomputed_bytes=15 * 2**20
    )
    loss = memory(totals, "megatron")
    assert loss.parts["logits and loss"] == 30 * 2**20
    assert loss.parts["recomputed activations"] == loss.parts["temporaries"] == 0
    layer = memory(totals._replace(layer_bytes=40 * 2**20), "megatron")
    assert layer.parts["logits and loss"] == 0
    assert (layer.parts["recomputed activations"], layer.parts["temporaries"]) == (15 * 2**20, 25 * 2**20)
    embedding = memory(totals._replace(embedding=40 * 2**20, micro_batch_bytes=10 * 2**20), "megatron")
    assert embedding.parts["activations"] == 90 * 2**20
    assert embedding.parts["gathered weights"] == 0
    assert embedding.parts["temporaries"] == 2 * 40 * 2**20


def test_replicated_gradients_lie_in_buckets_too():
    """DDP copies gradients to buckets, so that replicas hold them twice and one process once."""
    totals = stage(num_parameters=1000)
    assert memory(totals, "fsdp2", "fp32").parts["gradients"] == 4000
    assert memory(totals, "fsdp2", "fp32", data_parallel=2).parts["gradients"] == 8000


def test_offload_moves_bytes_to_the_host():
    """Offloaded optimizer state is in host memory; of offloaded activations two layers are on their way."""
    totals = stage(num_parameters=1000, activation_bytes=10**9, layer_kept_bytes=10**7)
    here = memory(totals, "megatron")
    recipe = Recipe(precision="bf16", offload_optimizer=True, offload_activations=1.0)
    away = memory(totals, "megatron", recipe=recipe)
    assert away.parts["optimizer state"] == away.parts["master weights"] == 0
    assert away.parts["activations"] == 2 * 10**7
    assert away.host_bytes == 12 * 1000 + 4 * 1000 + 10**9
    assert here.host_bytes == 0


def test_three_measures():
    """Allocated, reserved and device use differ by fragmentation, then by context and NCCL's buffers."""
    totals = stage(num_parameters=10**9, activation_bytes=10**9, largest_tensor=10**8)
    found = memory(totals, "megatron-deepspeed", "fp16", shard_level=1, data_parallel=16, tensor_parallel=8)
    assert found.allocated_bytes + found.parts["fragmentation"] == found.reserved_bytes
    assert found.reserved_bytes + found.parts["context"] + found.communicator_bytes == found.peak_bytes
    assert 0 < found.allocated_bytes < found.reserved_bytes < found.peak_bytes
    assert found.communicator_bytes <= found.parts["communication buffers"]


def test_fragmentation_ends_where_memory_does():
    """The allocator gives free segments back before it fails, so fragmentation never makes a run too large."""
    totals = stage(num_parameters=10**9, activation_bytes=10**10, largest_tensor=10**9)
    layout = {"shard_level": 1, "data_parallel": 1}
    free = memory(totals, "megatron-deepspeed", "fp16", **layout)
    assert free.parts["fragmentation"] > 10**9
    tight = memory(totals, "megatron-deepspeed", "fp16", capacity=free.peak_bytes - 10**9, **layout)
    assert tight.peak_bytes == free.peak_bytes - 10**9
    over = memory(totals, "megatron-deepspeed", "fp16", capacity=10**9, **layout)
    assert over.parts["fragmentation"] == 0
    assert over.peak_bytes > 10**9


def test_communicators_by_group():
    """A tensor parallel group in an island takes 688 MiB, its one neighbour over the network 139 (2 · 8 · 8.69)."""
    totals = stage(num_neighbours=1)
    found = memory(totals, "megatron", tensor_parallel=8, pipeline_parallel=2)
    network = 2 * 8 * (4 * 2**20 + 4_915_200)
    assert found.communicator_bytes == 688 * 2**20 + network + network  # tp; neighbour; the world
    assert memory(stage(), "megatron").communicator_bytes == 0


def test_parts_are_the_plans():
    """Every part is named as the plan names it, in its order."""
    assert tuple(memory(stage(num_parameters=1)).parts) == PARTS


def test_a_search_can_afford_it():
    """A call takes microseconds: a search makes a hundred thousand (a wide margin for a busy machine)."""
    totals = stage(num_parameters=10**9, activation_bytes=10**9)
    recipe, strategy, rules = Recipe(precision="bf16"), Strategy(stack="megatron", data_parallel=8), stack("megatron")
    best = min(timeit.repeat(lambda: stage_memory(totals, recipe, strategy, rules), number=2000, repeat=5)) / 2000
    assert best < 50e-6
