"""Recurrent kernels of cuDNN and ATen, which a CPU never runs: what they say against layers that it does run."""

import pytest
import torch
from torch import nn

from torchledger.tracer import Recorder
from torchledger.tracer.pricing import price
from torchledger.tracer.signature import Signature, TensorMeta

STEPS, BATCH, IN, HIDDEN, LAYERS = 5, 2, 3, 4, 2
MODES = {"RNN": 1, "LSTM": 2, "GRU": 3}


def _meta(*shape):
    return TensorMeta(shape, (1,) * len(shape), torch.float32)


def _stacked(kind, *, both_ways, mask=None, bias=True):
    """CuDNN's call for such layers."""
    directions = 2 if both_ways else 1
    weights = ("list", *[_meta(1)] * ((4 if bias else 2) * LAYERS * directions))
    named = {
        "input": _meta(STEPS, BATCH, IN), "weight": weights, "weight_buf": _meta(1), "hx": _meta(1), "output": _meta(1),
        "reserve": _meta(1), "mode": MODES[kind], "hidden_size": HIDDEN, "proj_size": 0, "num_layers": LAYERS,
        "batch_first": False, "bidirectional": both_ways, "output_mask": ("list", *(mask or ())),
    }  # fmt: skip
    op = "_cudnn_rnn" if mask is None else "_cudnn_rnn_backward"
    schema = getattr(torch.ops.aten, op).default._schema
    args = tuple(named.get(argument.name) for argument in schema.arguments)
    return price(Signature(f"aten.{op}.default", args), (_meta(1),)).pieces


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("kind", MODES)
def test_cudnn_counts_what_the_layers_products_are(kind, both_ways):
    """The CPU runs the same layers as products of doubles: forward, and backward with and without x's gradient."""
    layers = getattr(nn, kind)(IN, HIDDEN, LAYERS, bidirectional=both_ways).double()
    x = torch.zeros(STEPS, BATCH, IN, dtype=torch.float64, requires_grad=True)
    with Recorder() as recorder:
        layers(x)[0].sum().backward()
    ledger = recorder.trace().ledger.where(kind="matmul")

    def products(pieces, field="flops_full"):
        return sum(getattr(piece.work, field) for piece in pieces if piece.kind == "matmul")

    forward = products(_stacked(kind, both_ways=both_ways))
    assert forward == ledger.where(phase="forward").flops
    backward = _stacked(kind, both_ways=both_ways, mask=(True, False, False, True))
    assert products(backward) == ledger.where(phase="backward").flops
    assert products(backward, "flops_executed") == 2 * forward


def test_weights_alone():
    """Frozen inputs: the mask's fourth; frozen weights leave only what leads to the input."""
    pieces = _stacked("LSTM", both_ways=False, mask=(True, False, False, False))
    assert {p.gradient_of for p in pieces if p.kind == "matmul" and p.work.flops_full} == {"input"}


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_fused_cell_is_priced_element_by_element(kind):
    """Its two products are operations of their own."""
    op = f"_thnn_fused_{kind}_cell"
    gates = _meta(BATCH, (4 if kind == "lstm" else 3) * HIDDEN)
    priced = price(Signature(f"aten.{op}.default", (gates, gates, _meta(BATCH, HIDDEN))), (_meta(BATCH, HIDDEN),))
    assert [piece.kind for piece in priced.pieces] == ["pointwise"]
    assert priced.pieces[0].shape == (("elements", BATCH * HIDDEN),)
