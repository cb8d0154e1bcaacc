"""Forward passes of whole nets: one count each, in training and evaluation, on meta, and whatever kernel runs."""

import copy

import pytest
import torch
from torch import nn

from flop_rows.nets import ATTENTION, BLOCK, CAUSAL, FORWARD, Block, First, encoder_layer, mlp, tokens
from torchledger.ledger import Convention
from torchledger.tracer import trace

PUBLISHED = {
    "MLP": 303_104,
    "MLP on 3-D input": 606_208,
    "GPT-2 block": 6_815_744,
    "GPT-2 block, causal": 6_815_744,
    "GPT-2 block, written out": 6_815_744,
    "GQA": 2_097_152,
    "MultiheadAttention": 2_621_440,
    "MultiheadAttention without weights": 2_621_440,
    "TransformerEncoderLayer": 6_815_744,
    "TransformerEncoderLayer without dropout": 6_815_744,
    "conv net": 2_163_008,
    "LSTM": 3_670_016,
    "bi-GRU": 7_077_888,
    "LSTMCell loop": 1_572_864,
    "tied LM, one module's weight": 8_912_896,
    "tied LM, F.linear": 8_912_896,
    "one Linear called 3x": 1_572_864,
}


@pytest.mark.parametrize("name", FORWARD)
def test_the_forward_pass_of_a_net(name):
    """Two FLOPs a multiply-add of every product that the net is made of."""
    make, batch, flops = FORWARD[name]
    ledger = trace(make(), batch(), loss=lambda y, _: y.float().mean()).ledger
    assert ledger.is_complete
    assert ledger.where(phase="forward").flops == flops == PUBLISHED[name]


@pytest.mark.parametrize("name", FORWARD)
def test_evaluation_without_gradients_counts_the_same(name, look):
    """Fast paths run other kernels, for the same products."""
    make, batch, flops = FORWARD[name]

    def evaluate():
        with torch.inference_mode():
            make().eval()(batch())

    seen = look(evaluate).ledger.where(lambda line: line.module or line.kind != "unknown")
    assert seen.flops == flops


@pytest.mark.parametrize("name", ["GPT-2 block, causal", "TransformerEncoderLayer", "LSTM", "conv net", "GQA"])
@pytest.mark.filterwarnings("ignore")  # torch's own, about its compiler
def test_meta_evaluation_and_compiled_models_count_the_same(name):
    """The step's counts do not depend on where the model stands, its mode, or whether it would be compiled."""
    make, batch, _ = FORWARD[name]
    model = make()

    def count(net, x):
        return trace(net, x, loss=lambda y, _: y.float().mean()).ledger.flops

    expected = count(model, batch())
    assert count(copy.deepcopy(model).to("meta"), batch().to("meta")) == expected
    assert count(copy.deepcopy(model).eval(), batch()) == expected
    assert count(torch.compile(copy.deepcopy(model), backend="eager"), batch()) == expected


def test_causal_attention_counted_exactly():
    """A causal mask lets S·(S + 1)/2 pairs of S² through."""
    ledger = trace(Block(causal=True), tokens(), loss=lambda y, _: y.mean()).ledger.where(phase="forward")
    exact = ledger.under(Convention(attention="exact")).flops
    assert exact == BLOCK - ATTENTION + CAUSAL == 6_561_792


def test_the_rows_of_a_module_called_three_times():
    """All three calls are in the row of the one module, weights and inputs apart."""
    make, batch, flops = FORWARD["one Linear called 3x"]
    ledger = trace(make(), batch(), loss=lambda y, _: y.mean()).ledger
    assert ledger.where(module="layer").flops == ledger.flops == flops + (flops + 2 * flops // 3) == 4_194_304


def test_an_lstm_counts_the_same_whatever_kernel_runs_it():
    """A layer of oneDNN, and the loop of products that runs where it does not."""
    model, x = First(nn.LSTM(32, 64, 2, batch_first=True)), torch.zeros(2, 16, 32)
    as_one = trace(model, x, loss=lambda y, _: y.mean()).ledger
    in_steps = trace(model.double(), x.double(), loss=lambda y, _: y.mean()).ledger
    assert as_one.flops == in_steps.flops == 10_354_688
    one, steps = ({line.op for line in ledger if line.kind == "matmul"} for ledger in (as_one, in_steps))
    assert one != steps


def test_an_encoder_layer_on_padded_batches(look):
    """The mask of the fast path changes no full count, and leaves the exact one unknown."""

    def evaluate():
        with torch.no_grad():
            encoder_layer().eval()(tokens(), src_key_padding_mask=torch.zeros(2, 32, dtype=torch.bool))

    ledger = look(evaluate).ledger
    assert ledger.flops == BLOCK
    assert ledger.under(Convention(attention="exact")).flops is None


def test_counting_does_not_stop_a_later_compilation():
    """A function that was counted before it was called compiles as if it had not been."""
    compiled = []

    def backend(graph, _inputs):
        compiled.append(graph)
        return graph.forward

    model = torch.compile(mlp(), backend=backend)
    trace(model, torch.zeros(32, 64), loss=lambda y, _: y.mean())
    assert compiled == []
    model(torch.zeros(32, 64))
    assert len(compiled) == 1
    trace(model, torch.zeros(32, 64), loss=lambda y, _: y.mean())
    model(torch.zeros(32, 64))
    assert len(compiled) == 1, "counting a warm function leaves it warm"
