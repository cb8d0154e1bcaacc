"""A model's parts as ranks run them: what all ranks do and hold adds up to the whole model."""

from dataclasses import replace

import pytest

from torchledger.formula import KERNELS, count, num_parameters, parts
from torchledger.ledger import CONTRACTIONS
from torchledger.planner.block import formula_recipe, pieces, stream_bytes_of, stream_format
from torchledger.planner.stack import stack
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, NormSpec, Recipe, Strategy, presets

#: Dense, grouped keys, latent attention with experts, windows, experts with a shared one.
PRESETS = ("gpt2-medium", "llama-3-8b", "deepseek-v2-lite", "mistral-7b", "qwen1.5-moe-a2.7b", "mixtral-8x7b")
#: A stack that pads no vocabulary.
PLAIN = "torchtitan"


def of(name, strategy, recipe):
    """Pieces of a preset."""
    return pieces(presets.get(name), recipe, strategy, stack(strategy.stack))


def contraction_flops(found, field):
    """FLOPs of contractions of one rank for one micro-batch of the whole model."""
    return sum(
        piece.num_layers * line.times * getattr(line.work, field)
        for piece in found
        for line in piece.block.lines
        if line.kind in CONTRACTIONS
    )


LAYOUTS = {
    "dp": Strategy(data_parallel=4),
    "tp": Strategy(tensor_parallel=2),
    "sp": Strategy(tensor_parallel=4, sequence_parallel=True),
    "cp": Strategy(context_parallel=4),
    "ep": Strategy(data_parallel=4, expert_parallel=4),
    "whole experts": Strategy(
        data_parallel=2, tensor_parallel=2, sequence_parallel=True, expert_parallel=4, expert_tensor_parallel=1
    ),
    "all": Strategy(data_parallel=2, tensor_parallel=2, sequence_parallel=True, context_parallel=2, expert_parallel=4),
}
#: What every tensor parallel rank computes for all of its tokens; with sequence parallelism routers see a share.
REPEATED = ("key_value_down", "query_down"), ("router", "shared_gate")

#: Parameters that tensor parallelism leaves whole.
HELD_BY_ALL = (
    "norm",
    "output.bias",
    "down.bias",
    "router",
    "key_value_down",
    "query_down",
    "shared_gate",
    "position_embedding",
)


def question(name, layout):
    """A preset whose vocabulary the ranks divide, and one micro-batch of one sequence a replica."""
    spec = presets.get(name)
    spec = replace(spec, vocab_size=-(-spec.vocab_size // 4) * 4)
    return spec, Recipe(batch_size=layout.data_parallel, sequence_length=8192, precision="bf16")


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("field", ["flops_full", "flops_exact"])
def test_what_all_ranks_compute_is_what_the_model_computes(name, layout, field):
    """FLOPs of contractions of a rank, times ranks, are those of the model, in full and on visible pairs.

    But for what tensor parallel ranks repeat: compressing keys and values of latent attention, and scores of routers.
    """
    spec, recipe = question(name, layout)
    layout = replace(layout, stack=PLAIN, micro_batch_size=1)
    found = pieces(spec, recipe, layout, stack(PLAIN))
    whole = count(spec, recipe).where(lambda line: line.kind in CONTRACTIONS)
    repeated = REPEATED[0] if layout.sequence_parallel else (*REPEATED[0], *REPEATED[1])
    again = whole.where(lambda line: line.module.endswith(repeated)).total
    expected = getattr(whole.total, field) + (layout.tensor_parallel - 1) * getattr(again, field)
    assert contraction_flops(found, field) * layout.num_ranks == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_what_all_ranks_hold_is_the_model(name, layout):
    """Parameters add up over tensor parallel ranks, routed experts over their own; norms and such are repeated."""
    spec, recipe = question(name, layout)
    layout = replace(layout, stack=PLAIN, micro_batch_size=1)
    found = pieces(spec, recipe, layout, stack(PLAIN))
    whole = [
        (each.name, part.times * each.total)
        for part in parts(spec, recipe)
        for each in part.parameters
        if each.tied_to is None
    ]
    assert sum(size for _, size in whole) == num_parameters(spec)
    experts = sum(size for module, size in whole if ".experts." in module)
    rest = sum(size for module, size in whole if ".experts." not in module)
    repeated = sum(size for module, size in whole if any(each in module for each in HELD_BY_ALL))
    of_experts = layout.expert_parallel * (layout.expert_tensor_parallel or layout.tensor_parallel)
    assert sum(each.num_layers * each.block.num_expert_parameters for each in found) * of_experts == experts
    held = sum(each.num_layers * each.block.num_parameters for each in found)
    assert held == (rest - repeated) / layout.tensor_parallel + repeated


@pytest.mark.parametrize(
    ("tensor", "recompute", "expected"),
    [
        (1, "none", 34 + 5 * 16 * 2048 / 1024),
        (4, "none", 10 + 24 / 4 + 5 * 16 * 2048 / (1024 * 4)),
    ],
)
def test_kept_bytes_of_a_layer_are_korthikantis(tensor, recompute, expected):
    """Equations 1 and 2: s·b·h·(34 + 5·a·s/h), and over t ranks s·b·h·(10 + 24/t + 5·a·s/(h·t)) (2205.05198)."""
    spec = replace(presets.get("gpt2-medium"), dropout=0.1)
    spec = replace(spec, attention=replace(spec.attention, dropout=0.1))
    layout = Strategy(stack="megatron-2021", tensor_parallel=tensor, micro_batch_size=1)
    recipe = Recipe(batch_size=1, sequence_length=2048, precision="fp16", recompute=recompute)
    (layer,) = [
        each.block for each in pieces(spec, recipe, layout, stack("megatron-2021")) if each.block.kind == "layer"
    ]
    statistics = 2 * 2 * 4 * 2048  # two norms' means and deviations, which the paper leaves out
    assert layer.kept_bytes == pytest.approx(2048 * 1024 * expected + statistics, rel=1e-3)


@pytest.mark.parametrize("tensor", [2, 4, 8])
def test_sequence_parallelism_divides_everything(tensor):
    """Equation 4: s·b·h/t·(34 + 5·a·s/h): a rank of t keeps an even share of what one rank alone keeps."""
    spec, recipe = question("gpt2-medium", Strategy())
    alone, layout = (
        Strategy(stack="megatron"),
        Strategy(stack="megatron", tensor_parallel=tensor, sequence_parallel=True),
    )
    kept = [
        next(
            each.block.kept_bytes
            for each in pieces(spec, recipe, each, stack("megatron"))
            if each.block.kind == "layer"
        )
        for each in (alone, layout)
    ]
    assert kept[1] == kept[0] / tensor


def test_without_sequence_parallelism_norms_and_residuals_are_whole():
    """Norms cost each of four ranks what they cost one; with sequence parallelism a quarter."""

    def norm_bytes(layout):
        spec, recipe = question("llama-3-8b", layout)
        return sum(
            line.times * line.work.bytes_moved
            for piece in pieces(spec, recipe, layout, stack(layout.stack))
            for line in piece.block.lines
            if line.module.endswith("norm") and piece.block.kind == "layer"
        )

    one = norm_bytes(Strategy(stack=PLAIN))
    assert norm_bytes(Strategy(stack=PLAIN, tensor_parallel=4)) == one
    assert norm_bytes(Strategy(stack=PLAIN, tensor_parallel=4, sequence_parallel=True)) == one / 4


def test_windows_are_seen_whole_by_context_parallel_ranks():
    """Of 8192 tokens with a window of 4096 four ranks see an even share of its pairs, not four local triangles."""
    spec, recipe = question("mistral-7b", Strategy())
    layout = Strategy(stack=PLAIN, context_parallel=4)
    lines = [
        line
        for piece in pieces(spec, recipe, layout, stack(PLAIN))
        for line in piece.block.lines
        if line.kind == "attention" and line.phase == "forward"
    ]
    pairs = 4096 * 4097 // 2 + (8192 - 4096) * 4096
    heads, size = 32, 128
    assert [line.work.flops_exact for line in lines] == [pytest.approx(2 * 2 * heads * size * pairs / 4)]
    assert dict(lines[0].shape)["keys"] == 8192


@pytest.mark.parametrize(
    ("name", "asked", "stream"),
    [
        ("torchledger", "bf16", "fp32"),
        ("megatron", "bf16", "bf16"),
        ("fsdp2", "bf16", "bf16"),
        ("fsdp2", "fp32", "fp32"),
    ],
)
def test_the_stream_is_what_the_stack_makes_of_a_precision(name, asked, stream):
    """Autocast keeps a residual stream in FP32; 16-bit weights and FSDP's mixed policy one in 16 bit."""
    recipe = Recipe(precision=asked)
    assert stream_format(recipe, stack(name)) == stream
    assert stream_bytes_of(recipe, stack(name)) == {"fp32": 4, "bf16": 2}[stream]


def test_a_projected_embedding_is_sent_in_16_bit_until_something_wide_is_added() -> None:
    """Under autocast norms behind attention write FP32: the first layer's attention alone reads 16 bit, others 4 bytes.

    Each time 2·4·64 elements are sent; partial results have 2 bytes everywhere.
    """
    spec = ModelSpec("factored", 96, 8, 3, 64, AttentionSpec(4), MlpSpec(64), NormSpec(placement="post"))
    spec, layout = replace(spec, embedding_size=16), Strategy(tensor_parallel=2)
    asked = Recipe(batch_size=2, sequence_length=4, precision="bf16")
    found = [each for each in pieces(spec, asked, layout, stack("torchledger")) if each.block.kind == "layer"]
    sizes = [[e.num_bytes for e in each.exchanges if e.phase == "backward"] for each in found]
    narrow, wide = 2 * 4 * 64 * 2, 2 * 4 * 64 * 4
    assert [each.num_layers for each in found] == [1, 2]
    assert sizes == [[narrow, wide], [wide, wide]]
    assert {e.num_bytes for each in found for e in each.exchanges if e.phase == "forward"} == {narrow}


def test_a_stack_without_flash_attention_runs_the_products_one_by_one():
    """The formula is asked for `math` where the recipe or the stack says so."""
    fused, math = Recipe(attention="fused"), Recipe(attention="math")
    assert formula_recipe(fused, Strategy(), stack("megatron")).attention == "fused"
    assert formula_recipe(math, Strategy(), stack("megatron")).attention == "math"
    assert formula_recipe(fused, Strategy(), stack("megatron-2021")).attention == "math"


def test_kernel_sets_exist():
    """Every stack names a kernel set of the formula."""
    assert {stack(each).kernels for each in ("torchledger", "megatron", "fsdp2", PLAIN)} <= set(KERNELS)


def test_every_rank_keeps_the_scores_of_all_experts() -> None:
    """A router scores every expert, whichever rank holds it, so kept bytes do not fall with expert parallelism."""
    recipe = Recipe(batch_size=8, sequence_length=1024, precision="bf16")
    kept = {
        next(
            piece.block.kept_bytes
            for piece in pieces(
                presets.get("mixtral-8x7b"),
                recipe,
                Strategy(stack="megatron", data_parallel=8, expert_parallel=ranks, micro_batch_size=1),
                stack("megatron"),
            )
            if piece.block.kind == "layer"
        )
        for ranks in (1, 2, 8)
    }
    assert len(kept) == 1
