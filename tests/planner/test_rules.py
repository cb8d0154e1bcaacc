"""Shape rules: each with the numbers that break it, a remedy, and the fields that it reads."""

import dataclasses
import random
import re

import pytest

from torchledger.machine import parse_cluster
from torchledger.planner.errors import LayoutRefused, PlanError
from torchledger.planner.rules import layout_notes, refusals, refuse_impossible
from torchledger.planner.stack import stacks
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, Recipe, Strategy

WIDE = ModelSpec("wide", 50304, 4096, 12, 5120, AttentionSpec(40, num_key_value_heads=8), MlpSpec(20480))
MIXTURE = dataclasses.replace(WIDE, moe=MoeSpec(num_experts=16, experts_per_token=2, intermediate_size=1408))
RECIPE = Recipe(batch_size=64, sequence_length=4096, precision="bf16")


def texts(strategy, chips=None, spec=WIDE, recipe=RECIPE, chip="h100"):
    return [
        each.text for each in refusals(spec, recipe, strategy, parse_cluster(f"{chip}x{chips or strategy.num_ranks}"))
    ]


def test_seven_chips_and_eight_ranks():
    """Eight tensor parallel ranks on seven chips: the reason is the number, the remedy what divides it."""
    assert texts(Strategy(tensor_parallel=8), 7) == [
        "tensor_parallel 8 on 7 chips; tensor_parallel that divides 7: 1 and 7"
    ]


def test_forty_heads_over_sixteen_ranks():
    """40 heads over 16 ranks: 8, 10 and 20 are the nearest that divide them."""
    assert texts(Strategy(tensor_parallel=16)) == [
        "tensor_parallel 16 does not divide 40 attention heads; 8, 10 and 20 do"
    ]


def test_replicas_that_would_fill_the_cluster():
    """Where the other sizes divide the chips, the remedy is the data parallel ranks that fill them."""
    assert texts(Strategy(data_parallel=3, tensor_parallel=4), 16) == [
        "data_parallel 3 · tensor_parallel 4 = 12 ranks on 16 chips; data_parallel 4 uses all of them",
        "data_parallel 3 does not divide a batch of 64 sequences; 1, 2 and 4 do",
    ]


@pytest.mark.parametrize(
    ("strategy", "chips", "remedy"),
    [
        (Strategy(data_parallel=2, pipeline_parallel=3), 8, "pipeline_parallel that divides 8: 1, 2 and 4"),
        (Strategy(context_parallel=3), 8, "context_parallel that divides 8: 1, 2 and 4"),
        # 24 chips over 2 stages leave 12, over 5 tensor parallel ranks nothing whole
        (Strategy(tensor_parallel=5, pipeline_parallel=2), 24, "tensor_parallel that divides 12: 3, 4 and 6"),
        (
            Strategy(tensor_parallel=4, pipeline_parallel=4),
            8,
            "tensor_parallel that divides 2: 1 and 2, or pipeline_parallel that divides 2: 1 and 2",
        ),
        (
            Strategy(tensor_parallel=5, pipeline_parallel=3),
            8,
            "tensor_parallel · pipeline_parallel that divides 8: 2, 4 and 8",
        ),
    ],
)
def test_the_size_that_does_not_divide_the_chips_is_the_remedy(strategy, chips, remedy):
    """The remedy names a size that helps if it alone changes: 8 chips never hold 3 stages, whatever the others are."""
    assert texts(strategy, chips)[0].endswith(f"on {chips} chips; {remedy}")


@pytest.mark.parametrize(
    ("stages", "chunks", "remedies"),
    [
        (4, 7, ["virtual_stages of at most 3"]),  # 12 / 4; 12 / 7 is one stage, which has no chunks
        (8, 2, ["pipeline_parallel of at most 6"]),  # 12 / 2; 12 / 8 is one chunk, which is not interleaved
        (4, 4, ["virtual_stages of at most 3", "pipeline_parallel of at most 3"]),
        (7, 7, ["virtual_stages 1 and pipeline_parallel of at most 12"]),
    ],
)
def test_fewer_chunks_than_layers_is_a_remedy_that_is_not_refused_next(stages, chunks, remedies):
    """12 layers hold 12 / stages chunks, or 12 / chunks stages, where these are still two: `interleaved` asks that."""
    layout = Strategy(pipeline_parallel=stages, virtual_stages=chunks, schedule="interleaved", micro_batch_size=1)
    (text,) = (each for each in texts(layout) if "layers are fewer" in each)
    assert text == f"12 layers are fewer than {stages} stages of {chunks} chunks; {', or '.join(remedies)}"
    for remedy in remedies:
        for change in remedy.split(" and "):
            name, number = re.fullmatch(r"(\w+) (?:of at most )?(\d+)", change).groups()
            layout = dataclasses.replace(layout, **{name: int(number)})
        if layout.virtual_stages > 1:
            assert not [each for each in texts(layout) if "layers are fewer" in each or "chunk" in each]
        layout = dataclasses.replace(layout, pipeline_parallel=stages, virtual_stages=chunks)


@pytest.mark.parametrize(
    ("strategy", "says"),
    [
        (Strategy(tensor_parallel=20), "neither divides 8 key-value heads nor is a multiple of them; 2, 4 and 8"),
        (Strategy(context_parallel=3, stack="megatron"), "4096 tokens do not split over two pieces a rank"),
        (Strategy(context_parallel=3, stack="megatron"), "a sequence_length that is a multiple of 6, such as 4098"),
        (Strategy(context_parallel=2, stack="fsdp1"), "fsdp1 has no context parallelism by ring; it has: none"),
        (Strategy(context_parallel=16, context_kind="ulysses"), "ulysses splits 40 heads"),
        (Strategy(tensor_parallel=2, stack="fsdp1"), "fsdp1 has no tensor parallelism"),
        (Strategy(tensor_parallel=2, sequence_parallel=True, stack="deepspeed"), "no sequence parallelism"),
        (
            Strategy(pipeline_parallel=16),
            "12 layers are fewer than 16 stages of 1 chunks; pipeline_parallel of at most",
        ),
        (Strategy(pipeline_parallel=8, stack="megatron-2021"), "8 chunks do not divide them; pipeline_parallel · vir"),
        (Strategy(pipeline_parallel=2, stage_layers=(6, 5)), "add up to 11 layers; the model has 12"),
        (Strategy(pipeline_parallel=2, stage_layers=(6, 5, 1)), "has 3 numbers for 2 stages of 1 chunks; give 2"),
        (Strategy(pipeline_parallel=2, stage_layers=(13, -1)), "has -1 layers"),
        (Strategy(virtual_stages=2), "virtual_stages 2 without a pipeline"),
        (
            Strategy(pipeline_parallel=2, schedule="dualpipe", virtual_stages=2, stack="megatron"),
            "no schedule dualpipe",
        ),
        (Strategy(pipeline_parallel=2, schedule="interleaved"), "interleaved stages have at least two chunks"),
        (Strategy(pipeline_parallel=2, virtual_stages=2), "1f1b has one chunk a stage, not 2"),
        (Strategy(pipeline_parallel=2, stack="fsdp1"), "fsdp1 has no pipeline; pipeline_parallel 1"),
        (
            Strategy(pipeline_parallel=3, virtual_stages=2, schedule="interleaved", micro_batch_size=1),
            "interleaved runs micro-batches in equal groups of at least 3, and there are 64",
        ),
        (Strategy(data_parallel=8, expert_parallel=4), "wide has no experts"),
        (
            Strategy(data_parallel=2, shard_level=2, stack="megatron"),
            "megatron has no shard_level 2; it has 0, 1; stack megatron-fsdp has 2",
        ),
        (Strategy(data_parallel=2, shard_level=3, stack="megatron-2021"), "no shard_level 3; it has 0"),
        (
            Strategy(data_parallel=2, shard_level=3, reshard=False, stack="megatron-fsdp"),
            "megatron-fsdp gives gathered weights back after every forward pass; reshard true",
        ),
        (
            Strategy(data_parallel=2, pipeline_parallel=2, shard_level=2, stack="deepspeed", micro_batch_size=1),
            "deepspeed has no shard_level 2 with 2 pipeline stages; it has 0, 1",
        ),
        (Strategy(data_parallel=8, shard_level=3, shard_group=3), "shard_group 3 does not divide data_parallel 8"),
        (Strategy(data_parallel=8, shard_group=4), "shard_group 4 without a shard_level"),
        (Strategy(data_parallel=2, micro_batch_size=5), "micro_batch_size 5 does not divide the 32 sequences"),
        (Strategy(tensor_parallel=0), "tensor_parallel is 0; it is at least 1"),
        (Strategy(shard_level=4), "shard_level is 4"),
    ],
)
def test_each_rule_says_its_numbers(strategy, says):
    """Every rule names the numbers that break it and what would keep it."""
    assert any(says in text for text in texts(strategy, max(1, strategy.num_ranks))), texts(strategy, 1)


@pytest.mark.parametrize(
    ("strategy", "says"),
    [
        (
            Strategy(data_parallel=32, expert_parallel=32),
            "expert_parallel 32 does not divide 16 experts; 4, 8 and 16 do",
        ),
        (
            Strategy(data_parallel=4, expert_parallel=8),
            "does not divide the 4 ranks of a stage that it is taken from; 1, 2 and 4 do",
        ),
        (
            Strategy(data_parallel=8, expert_parallel=4, shard_level=3, shard_group=2, stack="torchtitan"),
            "expert_parallel 4 does not divide the ranks of a shard_group of 2",
        ),
        (Strategy(data_parallel=2, expert_parallel=2, stack="deepspeed-none"), ""),
        (Strategy(tensor_parallel=5), "does not divide the experts' width 1408"),
    ],
)
def test_rules_of_mixtures(strategy, says):
    """Experts over ranks, and their width over tensor parallel ones."""
    if strategy.stack == "deepspeed-none":
        with pytest.raises(PlanError, match="not known"):
            texts(strategy, spec=MIXTURE)
    else:
        assert any(says in text for text in texts(strategy, spec=MIXTURE))


def test_context_parallelism_needs_fused_attention():
    """Partial results of blocks of keys are put together by a fused kernel: scores in memory are refused."""
    recipe = dataclasses.replace(RECIPE, attention="math")
    (found,) = texts(Strategy(context_parallel=2), recipe=recipe)
    assert found.startswith("context_parallel 2 needs fused attention, and math writes scores to memory;")
    assert found.endswith("attention fused, or context_parallel 1")
    assert texts(Strategy(context_parallel=2)) == texts(Strategy(), recipe=recipe) == []


def test_expert_parallel_ranks_come_out_of_context_parallel_ones():
    """Eight are fine where data and context parallel ranks together are eight, or tensor ranks split no expert."""
    assert texts(Strategy(data_parallel=4, context_parallel=2, expert_parallel=8), spec=MIXTURE) == []
    folded = Strategy(data_parallel=4, tensor_parallel=2, expert_parallel=8, expert_tensor_parallel=1)
    assert texts(folded, spec=MIXTURE) == []
    assert len(texts(dataclasses.replace(folded, expert_tensor_parallel=2), spec=MIXTURE)) == 1


@pytest.mark.parametrize(
    ("precision", "chip", "lacking"),
    [
        ("fp8", "a100", "fp8"),
        ("mxfp8", "a100", "fp8"),
        ("nvfp4", "h100", "fp4"),
        ("bf16", "v100", "bf16"),
        ("fp32", "tpu-v5p", "fp32"),
    ],
)
def test_formats_that_a_chip_cannot_run(precision, chip, lacking):
    """A precision whose matmuls the chip cannot run is refused, and what it runs is told."""
    (text,) = texts(Strategy(), recipe=dataclasses.replace(RECIPE, precision=precision), chip=chip)
    assert f"precision {precision} needs {lacking}, which" in text
    assert "it runs" in text


def test_what_can_be_is_not_refused():
    """GPT-3's own layout on 1,024 A100 (tp 8, pp 8 interleaved, arXiv:2205.05198) breaks no rule."""
    gpt3 = ModelSpec("gpt3", 51200, 2048, 96, 12288, AttentionSpec(96), MlpSpec(4 * 12288, kind="plain"))
    recipe = Recipe(batch_size=1536, sequence_length=2048, precision="fp16")
    for strategy in (
        Strategy("megatron-2021", 8, tensor_parallel=8, pipeline_parallel=16, micro_batch_size=1),
        Strategy(
            "megatron",
            16,
            1,
            tensor_parallel=8,
            pipeline_parallel=8,
            virtual_stages=12,
            schedule="interleaved",
            micro_batch_size=1,
            sequence_parallel=True,
        ),
        Strategy("torchtitan", 1024, 3),
    ):
        few = dataclasses.replace(recipe, batch_size=1024) if strategy.stack == "torchtitan" else recipe
        assert texts(strategy, spec=gpt3, recipe=few, chip="a100") == []


def test_the_error_has_every_rule():
    """A layout that breaks three rules is refused with all three in one message."""
    strategy = Strategy(tensor_parallel=16, virtual_stages=2, shard_group=1)
    with pytest.raises(LayoutRefused) as raised:
        refuse_impossible(WIDE, RECIPE, strategy, parse_cluster("h100x16"))
    assert len(str(raised.value).splitlines()) == 3


def test_what_shares_the_fields_is_refused_too():
    """A rule's fields are all that it reads: any layout with the same values there is refused as well."""
    draw = random.Random(7)
    names = sorted(stacks())
    cluster = parse_cluster("a100x16")

    def drawn():
        return {
            "stack": draw.choice(names),
            "data_parallel": draw.choice([1, 2, 3, 4, 16]),
            "shard_level": draw.randrange(4),
            "shard_group": draw.choice([0, 0, 2, 3]),
            "tensor_parallel": draw.choice([1, 2, 4, 5, 16]),
            "sequence_parallel": draw.random() < 0.5,
            "pipeline_parallel": draw.choice([1, 2, 4, 5]),
            "schedule": draw.choice(["gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipe"]),
            "virtual_stages": draw.choice([1, 1, 2, 3]),
            "context_parallel": draw.choice([1, 1, 2, 3, 16]),
            "context_kind": draw.choice(["ring", "all-gather", "ulysses"]),
            "expert_parallel": draw.choice([1, 1, 2, 3, 32]),
            "expert_tensor_parallel": draw.choice([0, 1, 5]),
            "micro_batch_size": draw.choice([0, 1, 2, 5]),
        }

    checked = 0
    for _ in range(300):
        first = drawn()
        for broken in refusals(MIXTURE, RECIPE, Strategy(**first), cluster):
            other = drawn() | {name: first[name] for name in broken.fields if name in first}
            assert refusals(MIXTURE, RECIPE, Strategy(**other), cluster), (broken, other)
            checked += 1
    assert checked > 500


def test_wide_tensor_parallelism_is_noted():
    """Tensor parallel ranks beyond an island are allowed and noted, as are those that span two."""
    assert layout_notes(Strategy(tensor_parallel=8), parse_cluster("h100x16")) == ()
    assert "run over the network" in layout_notes(Strategy(tensor_parallel=16), parse_cluster("h100x16"))[0]
    assert "span two islands" in layout_notes(Strategy(tensor_parallel=5), parse_cluster("h100x40"))[0]
    ulysses = Strategy(context_parallel=16, context_kind="ulysses")
    assert "all-to-alls" in layout_notes(ulysses, parse_cluster("h100x16"))[0]
