"""FSDP2 and tensor parallelism of a small Llama: what a rank keeps, gathers, sends and multiplies."""

import pytest
import torch
import torch.distributed as dist
from distributed_steps import MIXED, Sizes, contraction_flops, fsdp, sent, two_dimensional
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from torchledger.tracer import trace_step

RANKS, BATCH, LENGTH = 4, 2, 16
SIZES = Sizes()  # hidden 64, 4 heads, inner 128, vocabulary 96, 2 layers: every parameter divides by 4
LAYER, MODEL = SIZES.layer_parameters, SIZES.parameters
ROOT = MODEL - SIZES.layers * LAYER  # embedding, head and last norm stand in the group around the layers
TOKENS = BATCH * LENGTH
# 2 a multiply-add; backward twice as much; attention 4·batch·length²·hidden a layer forward, full square.
ATTENTION = SIZES.layers * 4 * BATCH * LENGTH**2 * SIZES.hidden
FLOPS = 3 * (2 * TOKENS * (SIZES.layers * SIZES.layer_matrices + SIZES.vocabulary * SIZES.hidden) + ATTENTION)


@pytest.fixture(scope="module")
def mixed():
    """Four ranks, bf16 parameters gathered, fp32 gradients reduced."""
    return trace_step(fsdp(SIZES, (RANKS,), mp_policy=MIXED), world_size=RANKS)


def _kept(trace, part):
    """Bytes of a part at the end of the run, when nothing is gathered."""
    return sum(block.num_bytes for block in trace.timeline.live_at(trace.timeline.num_events) if block.part == part)


def test_a_rank_keeps_its_share_of_every_parameter_and_of_its_state(mixed):
    """A quarter of 4 bytes a parameter, and of 8 of AdamW; a step counter of 4 bytes a parameter tensor."""
    assert _kept(mixed, "parameters") == 4 * MODEL // RANKS
    assert _kept(mixed, "optimizer state") == 8 * MODEL // RANKS + 4 * (9 * SIZES.layers + 3)
    assert mixed.num_parameters == MODEL


def test_shares_are_named_by_their_parameter(mixed):
    """Of a 64 by 64 matrix four ranks keep 16 rows, fp32; gathered it is there whole in bf16."""
    blocks = {}
    for block in mixed.timeline.blocks:
        blocks.setdefault(block.name, block)
    assert blocks["layers.1.attention.wq.weight"].num_bytes == 4 * 16 * 64
    assert blocks["layers.1.attention.wq.weight.exp_avg"].num_bytes == 4 * 16 * 64
    assert blocks["layers.1.attention.wq.weight (gathered)"].num_bytes == 2 * 64 * 64
    assert blocks["layers.1.attention.wq.weight (unreduced)"].part == "gradients"
    assert blocks["layers.1.attention.wq.weight (unreduced)"].num_bytes == 2 * 64 * 64
    assert blocks["layers.1.*"].part == "gradients"  # one storage of all reduced gradients of the layer
    assert blocks["layers.1.*"].num_bytes == 4 * LAYER // RANKS


def test_every_rank_sends_what_the_ring_asks_for(mixed):
    """(n - 1)/n of the bf16 model to gather it, again without the root for the backward, and of its fp32 gradients."""
    share = (RANKS - 1) / RANKS
    assert sent(mixed) == {
        "all_gather (forward)": share * 2 * MODEL,
        "all_gather (backward)": share * 2 * (MODEL - ROOT),
        "reduce_scatter (backward)": share * 4 * MODEL,
    }


def test_collectives_tell_their_module_group_and_format(mixed):
    """A layer is gathered once forward and once backward, for itself, though another one is running then."""
    lines = [line for line in mixed.ledger.lines if line.kind == "collective" and line.module == "layers.0"]
    assert [(line.op, line.number_format, line.times) for line in lines] == [
        ("all_gather (forward)", "bf16", 1),
        ("all_gather (backward)", "bf16", 1),
        ("reduce_scatter (backward)", "fp32", 1),
    ]
    assert {line.phase for line in lines} == {"communication"}
    assert dict(lines[0].shape) == {"group": RANKS, "bytes": 2 * LAYER, "asynchronous": 0}
    assert dict(lines[2].shape) == {"group": RANKS, "bytes": 4 * LAYER, "asynchronous": 0}


def test_the_buffers_are_communication(mixed):
    """Copy-in of a share, the gathered whole, and the input of the reduction, per group of parameters."""
    begin = mixed.step_events
    sizes = [
        (block.module, block.num_bytes)
        for block in mixed.timeline.blocks
        if block.part == "communication" and block.allocated >= begin
    ]
    for module, elements in (("layers.0", LAYER), ("layers.1", LAYER)):
        share, whole, reduced = 2 * elements // RANKS, 2 * elements, 4 * elements
        assert [size for path, size in sizes if path == module] == [share, whole, share, whole, reduced]


def test_data_parallel_ranks_multiply_alike(mixed):
    """Every rank runs the whole model on its own batch."""
    assert contraction_flops(mixed) == FLOPS
    assert not mixed.ledger.unknown_lines


def test_without_resharding_the_layers_stay_and_are_gathered_once():
    """When the backward begins nothing stands whole, the root alone (torch's default), or every layer."""
    choices = [{"reshard_after_forward": True}, {}, {"reshard_after_forward": False}]
    traces = [trace_step(fsdp(SIZES, (RANKS,), mp_policy=MIXED, **choice), world_size=RANKS) for choice in choices]
    gathered = [sent(trace).get("all_gather (backward)", 0) for trace in traces]
    assert gathered == [3 * 2 * elements // 4 for elements in (MODEL, MODEL - ROOT, 0)]
    held = []
    for trace in traces:
        start = next(
            index for index, call in enumerate(trace.calls) if call.phase == "backward" and index > trace.first_call
        )
        live = trace.timeline.live_at(trace.timeline.call_positions[start])
        held.append(sum(block.num_bytes for block in live if block.name.endswith("(gathered)")))
    assert held == [0, 2 * ROOT, 2 * MODEL]


def test_resharding_to_a_smaller_group_gathers_within_it():
    """`reshard_after_forward=2` of 8: forward all eight, backward one other rank, half of the layers."""
    trace = trace_step(fsdp(SIZES, (8,), mp_policy=MIXED, reshard_after_forward=2), world_size=8)
    assert sent(trace, "all_gather") == {
        "all_gather (forward)": 7 * 2 * MODEL // 8,
        "all_gather (backward)": 1 * 2 * MODEL // 2,
    }


def test_replicas_of_shards_reduce_their_share_once_more():
    """HSDP, 2 replicas of 4 shards: every rank all-reduces its quarter of the fp32 gradients with one other."""
    trace = trace_step(fsdp(SIZES, (2, 4), names=("replica", "shard"), mp_policy=MIXED), world_size=8)
    assert sent(trace, "all_reduce") == {"all_reduce (backward)": 2 * 1 * (4 * MODEL // 4) // 2}


def test_uneven_shares_are_exact_on_every_rank():
    """98 rows over 4 ranks are 25, 25, 25 and 23; the last one's memory is padded to 25, its state is not."""
    sizes = Sizes(layers=0, vocabulary=98)
    for rank, rows in enumerate((25, 25, 25, 23)):
        trace = trace_step(fsdp(sizes, (4,)), world_size=4, rank=rank)
        by_name = {block.name: block for block in trace.timeline.blocks if block.freed is None}
        assert by_name["output.weight"].num_bytes == 4 * 25 * 64
        assert by_name["output.weight.exp_avg"].num_bytes == 4 * rows * 64
        assert by_name["output.weight.exp_avg_sq"].shape == (rows, 64)


@pytest.mark.parametrize("size", [2, 8])
def test_all_ranks_together_hold_the_state_once(size):
    """Over the ranks, shares of AdamW's two averages add up to 8 bytes a parameter, divisible or not."""
    sizes = Sizes(layers=1, vocabulary=98)
    averages = 0
    for rank in range(size):
        trace = trace_step(fsdp(sizes, (size,)), world_size=size, rank=rank)
        averages += sum(block.num_bytes for block in trace.timeline.blocks if ".exp_avg" in block.name)
    assert averages == 8 * sizes.parameters


def test_tensor_parallel_ranks_share_the_products():
    """Two linear layers over 4 ranks: 5,242,880 FLOPs forward and backward in all, 1,310,720 a rank."""
    tokens = 64
    whole = 5 * 2 * tokens * 64 * 128  # two forward, two weight gradients, one input gradient
    assert whole == 5_242_880
    assert {contraction_flops(_pair(rank, tokens)) for rank in range(4)} == {whole // 4}


def test_tensor_and_sequence_parallelism_share_everything_but_the_norms():
    """Every product and every attention head stands on one of two ranks, whichever rank is asked."""
    for rank in range(2):
        trace = trace_step(two_dimensional(SIZES, 1, 2), world_size=2, rank=rank)
        assert 2 * contraction_flops(trace) == FLOPS
        assert not trace.ledger.unknown_lines


def test_sequence_parallelism_sends_half_an_activation_around_every_part():
    """Forward: an all-gather before and a reduce-scatter after each part of a layer, half of [2, 16, 64] in fp32."""
    trace = trace_step(two_dimensional(SIZES, 1, 2), world_size=2)
    half = 4 * TOKENS * SIZES.hidden // 2
    parts = 2 * SIZES.layers
    assert sent(trace, "all_gather (forward)") == {"all_gather (forward)": (parts + 1) * half}  # one before the head
    assert sent(trace, "reduce_scatter (forward)") == {"reduce_scatter (forward)": (parts + 1) * half}  # one embedding


def test_two_dimensions_share_parameters_twice():
    """FSDP over 2 of tensor parallelism over 2: matrices are quartered, norms halved."""
    trace = trace_step(two_dimensional(SIZES, 2, 2), world_size=4, rank=3)
    matrices = SIZES.layers * SIZES.layer_matrices + 2 * SIZES.vocabulary * SIZES.hidden
    assert _kept(trace, "parameters") == 4 * (matrices // 4 + (MODEL - matrices) // 2)
    assert 2 * contraction_flops(trace) == FLOPS


@pytest.mark.parametrize(("target", "name"), [("cuda", "all_to_all"), ("cpu", "all_gather")])
def test_a_shard_moves_to_another_dimension_as_the_target_moves_it(target, name):
    """From rows to columns of [8, 12] over 4 ranks: one all-to-all on CUDA, a gathering on the CPU."""

    def build():
        mesh = init_device_mesh("cuda", (RANKS,))
        tensor = distribute_tensor(torch.randn(8, 12), mesh, [Shard(0)])
        return lambda: tensor.redistribute(mesh, [Shard(1)])

    part = 4 * 8 * 12 // RANKS
    expected = {"all_to_all": 3 * part // 4, "all_gather": 3 * part}[name]
    assert sent(trace_step(build, world_size=RANKS, target=target)) == {f"{name} (forward)": expected}


class Experts(nn.Module):
    """Two of eight experts on each of four ranks; tokens go there and back, as many to each as to any other."""

    def __init__(self, tokens, hidden, inner):
        super().__init__()
        self.splits = [tokens // RANKS] * RANKS
        self.up, self.down = nn.Parameter(torch.randn(2, hidden, inner)), nn.Parameter(torch.randn(2, inner, hidden))

    def forward(self, x):
        """X is [tokens, hidden], in the order of the experts it is for."""
        there = all_to_all_single_autograd(x, self.splits, self.splits, dist.group.WORLD)
        out = torch.relu(there.view(2, -1, x.shape[1]) @ self.up) @ self.down
        return all_to_all_single_autograd(out.flatten(0, 1), self.splits, self.splits, dist.group.WORLD)


def test_expert_parallel_ranks_send_tokens_there_and_back():
    """Three quarters of 64 tokens of 32 numbers, four times a step; the products are those of 64 tokens."""
    tokens, hidden, inner = 64, 32, 48

    def build():
        experts, x = Experts(tokens, hidden, inner), torch.randn(tokens, hidden, requires_grad=True)
        return lambda: experts(x).sum().backward()

    trace = trace_step(build, world_size=RANKS)
    once = 3 * 4 * tokens * hidden // 4
    assert sent(trace) == {"all_to_all (forward)": 2 * once, "all_to_all (backward)": 2 * once}
    assert contraction_flops(trace) == 3 * 2 * 2 * tokens * hidden * inner


def _pair(rank, tokens):
    def build():
        layers = nn.Sequential(nn.Linear(64, 128, bias=False), nn.ReLU(), nn.Linear(128, 64, bias=False))
        mesh = init_device_mesh("cuda", (4,))
        model = parallelize_module(layers, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        x = torch.randn(tokens, 64)
        return lambda: model(x).sum().backward()

    return trace_step(build, world_size=4, rank=rank)
