"""DDP with torch's own reducer over fake tensors: its buckets, its views, when it reduces and when not."""

import pytest
import torch
from distributed_steps import sent
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from torchledger.tracer import trace_step

N, WIDTH, DEPTH = 4, 600, 5
LAYER = 4 * (WIDTH * WIDTH + WIDTH)  # bytes of the gradients of one linear layer, 1,442,400


def _ddp(*, accumulate=1, unused=False, **options):
    def build():
        layers = [nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH)]
        inner = nn.Sequential(*layers)
        if unused:
            inner.forward = inner[:DEPTH].forward
            inner.add_module("spare", nn.Linear(WIDTH, WIDTH))
        model = DistributedDataParallel(inner, **options)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        x = torch.randn(8, WIDTH)

        def step():
            for micro in range(accumulate):
                if micro < accumulate - 1:
                    with model.no_sync():
                        model(x).sum().backward()
                else:
                    model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=not options.get("gradient_as_bucket_view"))

        return step

    return trace_step(build, world_size=N, steps=3)


def _buckets(trace):
    """Bytes of the buffers that are reduced in a step, in order."""
    return [
        dict(line.shape)["bytes"] for line in trace.ledger.lines if line.kind == "collective" for _ in range(line.times)
    ]


def test_buckets_are_filled_backwards_up_to_their_sizes():
    """The first bucket is closed at 1 MiB, the next at 25 MiB (torch's defaults): the last layer, then the others."""
    trace = _ddp()
    assert _buckets(trace) == [LAYER, (DEPTH - 1) * LAYER]
    assert sent(trace) == {"all_reduce (backward)": 2 * 3 * DEPTH * LAYER // N}


def test_a_smaller_cap_makes_more_buckets():
    """A cap of the user's own holds for the first bucket too: 2 MiB are full with the second layer."""
    assert _buckets(_ddp(bucket_cap_mb=2)) == [2 * LAYER, 2 * LAYER, LAYER]


@pytest.mark.parametrize("options", [{}, {"static_graph": True}, {"find_unused_parameters": True}])
def test_buckets_stand_beside_the_gradients(options):
    """Without views there is a buffer for every gradient besides the gradient itself."""
    trace = _ddp(**options)
    peak = trace.timeline.peak(since=trace.step_events).by_part()
    assert peak["communication"] >= DEPTH * LAYER
    assert peak["gradients"] == DEPTH * LAYER


def test_gradients_that_are_views_of_the_buckets_are_there_once():
    """`gradient_as_bucket_view=True` saves the second copy but for the one that autograd has just made."""
    plain, viewed = (_ddp(gradient_as_bucket_view=views) for views in (False, True))
    held = []
    for trace in (plain, viewed):
        at_optimizer = next(
            index for index, call in enumerate(trace.calls) if call.phase == "optimizer" and index > trace.first_call
        )
        live = trace.timeline.live_at(trace.timeline.call_positions[at_optimizer])
        held.append(sum(block.num_bytes for block in live if block.part in {"gradients", "communication"}))
    assert held == [2 * DEPTH * LAYER, DEPTH * LAYER]


def test_a_step_without_synchronisation_sends_nothing():
    """Of three micro-batches only the last reduces, what all of them have added up."""
    assert sent(_ddp(accumulate=3)) == sent(_ddp())


def test_every_rank_divides_before_it_reduces():
    """Each gradient is multiplied by 1/n into its place in the bucket: two tensors a layer."""
    trace = _ddp()
    into_buckets = [call for call in trace.calls[trace.first_call :] if call.signature.op == "aten.mul.out"]
    assert len(into_buckets) == 2 * DEPTH


@pytest.mark.parametrize("options", [{"find_unused_parameters": True}, {"static_graph": True}])
def test_a_parameter_that_is_not_used_gets_no_gradient(options):
    """DDP finds it and reduces its place in the bucket all the same; afterwards it has no gradient of its own."""
    trace = _ddp(unused=True, **options)
    assert sent(trace) == {"all_reduce (backward)": 2 * 3 * (DEPTH + 1) * LAYER // N}
    names = {block.name for block in trace.timeline.blocks if block.part == "gradients"}
    assert "module.0.weight" in names
    assert "module.spare.weight" not in names
