import pytest
import torch
from torch import nn

from torchledger.tracer import trace
from torchledger.tracer.targets.cuda.recurrent import RESERVE_IS_UNKNOWN

B, T, H, L = 2, 16, 64, 2
X = torch.zeros(B, T, H)


def _traced(model, name="cuda"):
    chip = {"chip": "A100 SXM 80GB"} if name == "cuda" else {}
    return trace(model, X, loss=lambda out, _: out[0].float().sum(), steps=1, target=name, precision="fp32", **chip)


@pytest.mark.parametrize(("layer", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
def test_one_operation_of_cudnn_with_the_models_flops(layer, gates):
    """Forward and twice that, without gradients of the batch and of the first states, as on the CPU.

    Forward: 2·B·T·gates·H·(H + H) a layer. The batch's gradient would be 2·B·T·gates·H·H more, that of a layer's first
    state 2·B·gates·H·H.
    """
    model = layer(H, H, L, batch_first=True)
    forward = L * 2 * B * T * gates * H * (H + H)
    expected = 3 * forward - 2 * B * T * gates * H * H - L * 2 * B * gates * H * H
    seen = _traced(model)
    assert [call.signature.op for call in seen.calls].count("aten._cudnn_rnn.default") == 1
    assert [call.signature.op for call in seen.calls].count("aten._cudnn_rnn_backward.default") == 1
    assert seen.ledger.flops == _traced(model, "cpu").ledger.flops == expected
    assert RESERVE_IS_UNKNOWN in seen.assumptions


def test_gradients_lie_in_one_buffer():
    """All weights' gradients are one block, as cuDNN writes them: 4·H·(H + H + 2) numbers of 4 B."""
    seen = _traced(nn.LSTM(H, H, batch_first=True))
    assert [block.num_bytes for block in seen.timeline.blocks if block.part == "gradients"] == [4 * H * (H + H + 2) * 4]


def test_both_directions_and_projections():
    """The output is as wide as both directions' projected states."""
    seen = _traced(nn.LSTM(H, H, batch_first=True, bidirectional=True, proj_size=16))
    out = next(block for block in seen.timeline.blocks if block.op == "aten._cudnn_rnn.default")
    assert out.shape[-1] == 2 * 16


def test_autocast_casts_weights_anew():
    """Under autocast cuDNN's layers get a low-precision copy of their weights at every call, and answer in it."""
    model = nn.LSTM(H, H, batch_first=True)
    seen = trace(
        model, X, loss=lambda out, _: out[0].float().sum(), steps=1, target="cuda", chip="H100 SXM", precision="bf16"
    )  # fmt: skip
    out = next(block for block in seen.timeline.blocks if block.op == "aten._cudnn_rnn.default")
    assert out.number_format == "bf16"
    assert not any(block.part == "autocast casts" for block in seen.timeline.blocks)
