"""What a rank runs in a step, as lines: FLOPs of all ranks are the model's, bytes sent those of the algorithms."""

from dataclasses import replace

import pytest

from torchledger.formula import count, parameters
from torchledger.formula.optimizer import trained
from torchledger.ledger import CONTRACTIONS
from torchledger.machine import parse_cluster
from torchledger.planner.exchange import Exchange
from torchledger.planner.plan import plan
from torchledger.planner.stage_ledger import collective, exchange_line
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, OptimizerSpec, Recipe, Strategy

SPEC = ModelSpec("small", 1024, 512, 8, 256, AttentionSpec(8), MlpSpec(1024))
RECIPE = Recipe(batch_size=64, sequence_length=512, precision="bf16-master")
#: Blocks with parameters.
PARTS = {"embedding", "layer", "head"}
#: Elements of the residual stream of one sequence.
STREAM = 512 * 256


def ledgers(strategy, recipe=RECIPE, spec=SPEC):
    """Of every stage."""
    found = plan(spec, recipe, strategy, parse_cluster(f"h100x{strategy.num_ranks}"))
    return [each.ledger for each in found.stages]


def sent(ledger, op=None):
    """Bytes that the rank sends, by one kind of collective."""
    lines = ledger.where(lambda line: line.phase == "communication" and op in {None, line.op})
    return sum(line.times * line.work.bytes_sent for line in lines)


@pytest.mark.parametrize(
    "layout",
    [
        Strategy(data_parallel=4, micro_batch_size=4),
        Strategy(tensor_parallel=4, micro_batch_size=2, sequence_parallel=True),
        Strategy(data_parallel=2, context_parallel=2, micro_batch_size=1),
        Strategy(data_parallel=2, pipeline_parallel=4, micro_batch_size=1),
        Strategy(pipeline_parallel=4, micro_batch_size=1, stage_layers=(1, 2, 3, 2)),
        Strategy(pipeline_parallel=2, virtual_stages=2, schedule="interleaved", micro_batch_size=1),
        Strategy(stack="torchtitan", pipeline_parallel=4, schedule="dualpipe", micro_batch_size=1),
        Strategy(data_parallel=2, tensor_parallel=2, pipeline_parallel=2, context_parallel=2, micro_batch_size=2),
    ],
    ids=lambda each: each.schedule,
)
def test_flops_of_all_ranks_are_the_models(layout):
    """FLOPs of contractions of all stages, times the ranks of a stage, are `count`'s, forward and backward apart."""
    found = ledgers(layout)
    for phase in ("forward", "backward"):
        whole = count(SPEC, RECIPE).where(lambda line, at=phase: line.kind in CONTRACTIONS and line.phase == at).total
        mine = [
            each.where(lambda line, at=phase: line.kind in CONTRACTIONS and line.phase == at).total for each in found
        ]
        ranks = layout.num_ranks // layout.pipeline_parallel
        assert sum(each.flops_full for each in mine) * ranks == pytest.approx(whole.flops_full, rel=1e-12)
        assert sum(each.flops_exact for each in mine) * ranks == pytest.approx(whole.flops_exact, rel=1e-12)


def test_tensor_parallel_ranks_send_two_thirds_and_more_of_the_stream():
    """A layer all-reduces its stream 4 times, each rank of 4 sending 2·3/4 of it; embedding, head and loss besides."""
    (found,) = ledgers(Strategy(stack="megatron", tensor_parallel=4, micro_batch_size=1))
    size, times = 2 * STREAM, 64
    layers = found.where(lambda line: line.module.startswith("layers"))
    assert sent(layers, "all_reduce") == pytest.approx(8 * 4 * times * size * 2 * 3 / 4)
    ends = sent(found, "all_reduce") - sent(layers, "all_reduce")
    assert ends == pytest.approx(times * (2 * size + 3 * 512 * 4) * 2 * 3 / 4)


def test_replicas_add_up_their_gradients():
    """Level 0: an all-reduce of FP32 gradients, each rank of 8 sending 2·7/8 of them."""
    strategy = Strategy(stack="megatron", data_parallel=8, micro_batch_size=8)
    (found,) = plan(SPEC, RECIPE, strategy, parse_cluster("h100x8")).stages
    assert sent(found.ledger) == sent(found.ledger, "all_reduce")
    assert sent(found.ledger) == pytest.approx(4 * found.stage.num_parameters * 2 * 7 / 8)


def test_sharded_states_reduce_gradients_and_gather_weights():
    """Level 1: a reduce-scatter of FP32 gradients and an all-gather of 16-bit weights (arXiv:1910.02054, section 7)."""
    strategy = Strategy(stack="megatron", data_parallel=8, shard_level=1, micro_batch_size=8)
    (found,) = plan(SPEC, RECIPE, strategy, parse_cluster("h100x8")).stages
    assert sent(found.ledger, "all_gather") == pytest.approx(2 * found.stage.num_parameters * 7 / 8)
    assert sent(found.ledger, "reduce_scatter") == pytest.approx(4 * found.stage.num_parameters * 7 / 8)


def test_adapters_alone_are_reduced_and_gathered():
    """With LoRA below level 3, what is frozen is neither reduced nor gathered: bytes are the adapters' own."""
    strategy = Strategy(stack="megatron", data_parallel=8, shard_level=1, micro_batch_size=8)
    (found,) = plan(SPEC, replace(RECIPE, lora_rank=8), strategy, parse_cluster("h100x8")).stages
    trained = sum(block.num_trainable * number for block, number in found.stage.blocks)
    assert trained < found.stage.num_parameters / 10
    assert sent(found.ledger, "all_gather") == pytest.approx(2 * trained * 7 / 8)
    assert sent(found.ledger, "reduce_scatter") == pytest.approx(4 * trained * 7 / 8)


@pytest.mark.parametrize(("reshard", "gathers"), [(True, 2), (False, 1)])
def test_level_3_sends_for_every_micro_batch(reshard, gathers):
    """Each micro-batch gathers all weights once or twice and reduces all gradients once."""
    strategy = Strategy(stack="fsdp2", data_parallel=8, shard_level=3, reshard=reshard, micro_batch_size=2)
    recipe = replace(RECIPE, precision="bf16")
    found = plan(SPEC, recipe, strategy, parse_cluster("h100x8")).stages[0]
    size = found.stage.num_parameters
    assert sent(found.ledger, "all_gather") == pytest.approx(gathers * 4 * 2 * size * 7 / 8)
    assert sent(found.ledger, "reduce_scatter") == pytest.approx(4 * 4 * size * 7 / 8)


def test_replicas_of_a_shard_group_add_up_their_shards():
    """HSDP over 2 groups of 4: an all-reduce of a quarter of the gradients over 2 ranks, 2·1/2 of it sent."""
    strategy = Strategy(stack="fsdp2", data_parallel=8, shard_group=4, shard_level=3, micro_batch_size=8)
    found = plan(SPEC, replace(RECIPE, precision="bf16"), strategy, parse_cluster("h100x8")).stages[0]
    assert sent(found.ledger, "all_reduce") == pytest.approx(4 * found.stage.num_parameters / 4 * 2 * 1 / 2)


def test_stages_send_activations_on_and_gradients_back():
    """The first stage of four sends forwards only, the last backwards only, those between both: 2 bytes an element."""
    found = ledgers(Strategy(pipeline_parallel=4, micro_batch_size=1))
    one = 64 * 2 * STREAM
    assert [sent(each, "send") for each in found] == [one, 2 * one, 2 * one, one]


def test_chunks_hand_on_their_own():
    """Two chunks of two stages: parts 0 and 2 on the first, of which only part 0 has nothing before it."""
    found = ledgers(Strategy(pipeline_parallel=2, virtual_stages=2, schedule="interleaved", micro_batch_size=1))
    one = 64 * 2 * STREAM
    assert [sent(each, "send") for each in found] == [(1 + 2) * one, (2 + 1) * one]


def test_dualpipe_hands_on_half_of_the_micro_batches_each_way():
    """Rank 0 of 4 holds the first part and the last: half forwards from one, half backwards from the other."""
    found = ledgers(Strategy(stack="torchtitan", pipeline_parallel=4, schedule="dualpipe", micro_batch_size=1))
    one = 32 * 2 * STREAM
    assert [sent(each, "send") for each in found] == [2 * one, 4 * one, 4 * one, 2 * one]


def test_the_optimizer_moves_its_shard_in_the_stacks_formats():
    """AdamW on an FP32 copy: gradient 2, master 4, moments 8 read; master, moments and the 16-bit weight written."""
    recipe = replace(RECIPE, optimizer=OptimizerSpec(gradient_clip=0.0))
    strategy = Strategy(stack="megatron", data_parallel=8, shard_level=1, micro_batch_size=8)
    found = plan(SPEC, recipe, strategy, parse_cluster("h100x8")).stages[0]
    moved = found.ledger.where(phase="optimizer").total.bytes_moved
    shard = -(-found.stage.num_parameters // 8)
    assert moved == shard * ((2 + 4 + 8) + (4 + 8 + 2))


def test_full_recompute_runs_every_layers_forward_pass_again():
    """All of a layer's products but the last, whose result nobody needs again; embedding and head are not run again."""
    (found,) = ledgers(Strategy(micro_batch_size=8), replace(RECIPE, recompute="full"))
    layers = found.where(lambda line: line.module.startswith("layers") and line.kind in CONTRACTIONS)
    forward = layers.where(phase="forward").total.flops_full
    down = layers.where(lambda line: line.phase == "forward" and line.module.endswith("mlp.down")).total.flops_full
    assert layers.where(phase="recompute").total.flops_full == forward - down
    assert not found.where(lambda line: line.phase == "recompute" and not line.module.startswith("layers")).lines


@pytest.mark.parametrize(
    ("op", "bytes_sent"),
    [
        ("all_reduce", 2 * 3 / 4 * 4096),
        ("all_gather", 3 / 4 * 4096),
        ("reduce_scatter", 3 / 4 * 4096),
        ("all_to_all", 3 / 4 * 4096),
        ("send", 4096),
    ],
)
def test_bytes_of_collectives_are_those_of_the_ring(op, bytes_sent):
    """Of a whole tensor of 4096 bytes over 4 ranks."""
    (piece,) = collective(op, 4096, 4, 2)
    assert piece.work.bytes_sent == bytes_sent


def test_an_exchange_is_a_line_where_it_belongs():
    """Module, phase and how many times are the exchange's; the group is its kind of parallelism's."""
    strategy = Strategy(tensor_parallel=2, context_parallel=4)
    line = exchange_line(Exchange("layers.*.attention.core", "send", 100, "forward", "context", 3), strategy, 2)
    assert (line.module, line.phase, line.times, line.work.bytes_sent) == (
        "layers.*.attention.core",
        "communication",
        3,
        100,
    )


@pytest.mark.parametrize(
    "recipe",
    [replace(RECIPE, lora_rank=4), replace(RECIPE, trainable=("layers.2-3", "layers.6-7", "head"))],
    ids=["adapters", "parts"],
)
@pytest.mark.parametrize("stages", [1, 2])
def test_what_is_not_trained_has_no_gradient_on_any_stage(recipe, stages):
    """Backward FLOPs and trained parameters of all stages are the model's: no kind of layer is taken for another."""
    strategy = Strategy(pipeline_parallel=stages, micro_batch_size=1)
    found = plan(SPEC, recipe, strategy, parse_cluster(f"h100x{stages}"))
    products = [line for line in count(SPEC, recipe).lines if line.kind in CONTRACTIONS and line.phase == "backward"]
    mine = [line for each in found.stages for line in each.ledger.lines]
    mine = [line for line in mine if line.kind in CONTRACTIONS and line.phase == "backward"]
    whole = sum(line.times * line.work.flops_full for line in products)
    assert sum(line.times * line.work.flops_full for line in mine) == pytest.approx(whole, rel=1e-12)
    updated = sum(block.num_trainable * n for each in found.stages for block, n in each.stage.blocks)
    assert updated == sum(each.total for each in trained(parameters(SPEC, recipe)))


@pytest.mark.parametrize(("level", "reductions"), [(1, 1), (2, 8)])
def test_level_2_sends_gradients_for_every_micro_batch(level, reductions):
    """ZeRO-2 of 8 ranks, 8 micro-batches: 7/8 of each parameter's 2 bytes for each reduction, and once gathered."""
    strategy = Strategy(stack="deepspeed", data_parallel=8, shard_level=level, micro_batch_size=1)
    (found,) = ledgers(strategy)
    size = sum(each.total for each in parameters(SPEC, RECIPE))
    assert sent(found) == pytest.approx(7 / 8 * size * 2 * (reductions + 1))


def test_adding_up_gradients_moves_them_once_for_each_later_micro_batch():
    """DDP under autocast: 7 of 8 micro-batches read 4 + 4 bytes a parameter and write 4."""
    strategy = Strategy(data_parallel=8, micro_batch_size=1)
    (found,) = ledgers(strategy, replace(RECIPE, precision="bf16"))
    lines = [line for line in found.lines if line.op == "gradient_accumulation" and line.module in PARTS]
    size = sum(each.total for each in parameters(SPEC, RECIPE))
    assert sum(line.times * line.work.bytes_moved for line in lines) == 7 * 12 * size


def test_the_ends_of_a_pipeline_add_up_the_gradients_of_a_tied_table():
    """All-reduce of 2 ranks: 2·(2 - 1)/2 of 1024 · 256 elements of 4 bytes, on the first and the last of 4 stages."""
    strategy = Strategy(pipeline_parallel=4, micro_batch_size=1)
    tied = ledgers(strategy, replace(RECIPE, precision="bf16"), replace(SPEC, tied_embeddings=True))
    assert [sent(each, "all_reduce") for each in tied] == [1024 * 256 * 4, 0, 0, 1024 * 256 * 4]


def test_both_copies_of_a_bidirectional_pipeline_add_up_their_gradients():
    """Without replicas each of 2 ranks all-reduces its 4 bytes a parameter with the other: 2·(2 - 1)/2 of them."""
    strategy = Strategy(stack="torchtitan", pipeline_parallel=2, schedule="dualpipe", micro_batch_size=1)
    size = sum(each.total for each in parameters(SPEC, RECIPE))
    for each in ledgers(strategy, replace(RECIPE, precision="bf16")):
        assert sent(each, "all_reduce") == size * 4


def test_what_waits_on_the_host_is_copied_there_and_back():
    """4 bytes of gradient out and 2 of weight back a parameter of its own eighth, half of what is kept both ways."""
    strategy = Strategy("megatron", data_parallel=8, shard_level=1, micro_batch_size=1)
    recipe = replace(RECIPE, offload_optimizer=True, offload_activations=0.5)
    (found,) = plan(SPEC, recipe, strategy, parse_cluster("h100x8")).stages
    out, back = (
        found.ledger.where(lambda line, at=op: line.op == at).lines for op in ("copy_to_host", "copy_from_host")
    )
    mine = -(-found.stage.num_parameters // 8)
    assert [line.total.bytes_read for line in out if line.phase == "optimizer"] == [pytest.approx(4 * mine, rel=1e-5)]
    assert [line.total.bytes_written for line in back if line.phase == "optimizer"] == [
        pytest.approx(2 * mine, rel=1e-5)
    ]
    kept = sum(block.kept_bytes * count for block, count in found.stage.blocks if block.kind != "head")
    assert sum(line.total.bytes_read for line in out if line.phase == "forward") == 8 * kept / 2
    assert sum(line.total.bytes_written for line in back if line.phase == "backward") == 8 * kept / 2
    assert not [line for line in ledgers(strategy)[0].lines if "host" in line.op]
