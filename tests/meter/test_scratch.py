"""What kernels hold inside, against operations whose inside is known."""

import pytest
import torch
from torch import nn

from torchledger.meter import allocations, probe
from torchledger.tracer import Recorder, trace_step


def _signatures(run):
    with Recorder() as recorder:
        run()
    return [call.signature for call in recorder.trace().calls]


def test_an_operation_that_holds_its_output_and_no_more():
    """Adding two tensors of 1,024 floats holds 4,096 bytes inside and leaves 4,096."""
    a = torch.ones(1024)
    (signature,) = _signatures(lambda: a + a)
    scratch = probe([signature])
    assert scratch.internal_bytes[signature] == 1024 * 4
    assert scratch.output_bytes[signature] == 1024 * 4
    assert scratch.beyond_outputs() == {}


def test_an_operation_in_place_holds_nothing():
    """relu_ writes into its argument."""
    a = torch.ones(1024)
    (signature,) = _signatures(a.relu_)
    assert probe([signature]).internal_bytes[signature] == 0


def test_scratch_beyond_the_output_is_named():
    """Sorting along a strided dimension copies the values and indices, so it holds more than its two outputs."""
    a = torch.rand(512, 8)
    signatures = _signatures(lambda: torch.sort(a, dim=0))
    scratch = probe(signatures)
    (signature,) = dict.fromkeys(signatures)
    assert scratch.output_bytes[signature] == 512 * 8 * (4 + 8)
    assert scratch.internal_bytes[signature] >= scratch.output_bytes[signature]


def test_equal_calls_are_replayed_once():
    """Progress is told once for each distinct call."""
    a = torch.ones(4)
    told = []
    probe(_signatures(lambda: [a + a for _ in range(5)]), on_progress=lambda *step: told.append(step))
    assert told == [(0, 1, "aten.add.Tensor")]


def test_probing_leaves_the_random_stream_alone():
    """Replaying a random operation does not move the generator."""
    signatures = _signatures(lambda: torch.empty(8).normal_())
    torch.manual_seed(3)
    state = torch.get_rng_state()
    probe(signatures)
    assert torch.equal(torch.get_rng_state(), state)


def test_what_cannot_be_replayed_is_said():
    """An operation that refuses zeros (drawing from a distribution without mass) is listed with torch's reason."""
    weights = torch.ones(4)
    scratch = probe(_signatures(lambda: torch.multinomial(weights, 1)))
    assert list(scratch.skipped) == ["aten.multinomial.default"]
    assert "sum of probabilities" in scratch.skipped["aten.multinomial.default"]


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True, "bias": False}])
def test_what_recurrent_layers_leave_to_their_backward_pass(options):
    """Tensors, the workspace that oneDNN's forward pass leaves, and what kernels hold: the allocator's peak."""

    def build():
        layer, x = nn.LSTM(32, 32, **options), torch.randn(4, 8, 32)

        def step():
            layer(x)[0].sum().backward()
            layer.zero_grad()

        return step

    def really():
        step = build()
        step()
        step()

    really()
    seen = trace_step(build)
    scratch = probe(call.signature for call in seen.calls)
    assert scratch.skipped == {}
    peak = scratch.timeline(seen).peak(internal=scratch.by_call(seen))
    assert peak.peak_bytes == allocations(really).peak_bytes
