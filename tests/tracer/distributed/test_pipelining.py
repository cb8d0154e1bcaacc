"""One stage of a pipeline by torch's own schedules: what it sends to its neighbours, and when."""

import pytest
import torch
import torch.distributed as dist
from distributed_steps import contraction_flops
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from torchledger.tracer import TraceError, trace_step

STAGES, MICRO, ROWS, WIDTH = 4, 8, 4, 32
ACTIVATION = 4 * ROWS * WIDTH  # bytes of a micro-batch between two stages


def _stage(schedule, rank, *, examples=True):
    def build():
        layer = nn.Linear(WIDTH, WIDTH, bias=False)
        given = {}
        if examples:
            inputs = torch.randn(ROWS, WIDTH, requires_grad=rank > 0)
            given = {"input_args": (inputs,), "output_args": (torch.randn(ROWS, WIDTH, requires_grad=True),)}
        stage = PipelineStage(layer, rank, STAGES, torch.device("cpu"), **given)
        runs = schedule(stage, MICRO, loss_fn=lambda output, target: (output - target).pow(2).mean())
        batch = torch.randn(MICRO * ROWS, WIDTH)

        def step():
            first, last = dist.get_rank() == 0, dist.get_rank() == STAGES - 1
            runs.step(*([batch] if first else []), **({"target": batch} if last else {}))
            layer.weight.grad = None

        return step

    return trace_step(build, world_size=STAGES, rank=rank)


@pytest.mark.parametrize("schedule", [ScheduleGPipe, Schedule1F1B])
@pytest.mark.parametrize(("rank", "neighbours"), [(0, 1), (1, 2), (STAGES - 1, 1)])
def test_a_stage_sends_one_activation_or_gradient_a_micro_batch_and_neighbour(schedule, rank, neighbours):
    """Activations go on, gradients back: 8 micro-batches to each neighbour."""
    trace = _stage(schedule, rank)
    sent = sum(line.total.bytes_sent for line in trace.ledger.lines)
    assert sent == neighbours * MICRO * ACTIVATION


@pytest.mark.parametrize(("rank", "products"), [(0, 2), (1, 3)])
def test_a_stage_multiplies_its_own_layer(rank, products):
    """Forward and weight gradient; the gradient of the input too where a stage comes before."""
    assert contraction_flops(_stage(Schedule1F1B, rank)) == products * MICRO * 2 * ROWS * WIDTH * WIDTH


def test_one_forward_one_backward_holds_fewer_activations():
    """The first of 4 stages runs 4 micro-batches ahead under 1F1B, all 8 under GPipe."""
    peaks = {
        schedule: max(
            sum(
                1
                for block in trace.timeline.live_at(position)
                if block.op == "aten.mm.default" and block.part == "activations"
            )
            for position in trace.timeline.call_positions[trace.first_call :]
        )
        for schedule, trace in ((each, _stage(each, 0)) for each in (ScheduleGPipe, Schedule1F1B))
    }
    assert peaks[Schedule1F1B] < peaks[ScheduleGPipe]


def test_a_stage_that_would_ask_for_shapes_is_told_to_give_them():
    """The neighbours are not there to answer."""
    with pytest.raises(TraceError, match="input_args and output_args"):
        _stage(Schedule1F1B, 1, examples=False)
