"""flex_attention's mask, counted pair by pair and block by block."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from torchledger.ledger import HARDWARE_FLOPS, Convention
from torchledger.tracer import Recorder

B, H, S, h = 2, 2, 256, 16
BLOCK = 128

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about running it without its compiler


def _ledger(mask, *, heads=None, batch=None, keys=S):
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode, Recorder(fake_mode=mode) as recorder:
        q, k = torch.zeros(B, H, S, h), torch.zeros(B, H, keys, h)
        blocks = None if mask is None else create_block_mask(mask, batch, heads, S, keys, "cpu")
        flex_attention(q, k, k, block_mask=blocks)
    return recorder.trace().ledger


def _count(sees, keys=S, heads=1):
    """Pairs that are seen, and pairs of blocks that have one, over `heads` heads."""
    seen = [(head, q, k) for head in range(heads) for q in range(S) for k in range(keys) if sees(0, head, q, k)]
    return len(seen), len({(head, q // BLOCK, k // BLOCK) for head, q, k in seen}) * BLOCK**2


MASKS = {
    "causal": lambda _b, _h, q, k: q >= k,
    "window of 9": lambda _b, _h, q, k: (q >= k) & (q - k < 9),
    "prefix of 5": lambda _b, _h, q, k: (q >= k) | (k < 5),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_of_positions(name):
    """Full: all pairs; exact: those that the function lets through; executed: whole blocks of 128 x 128."""
    ledger = _ledger(MASKS[name])
    pairs, blocks = _count(MASKS[name])
    assert ledger.is_complete
    assert ledger.flops == 4 * B * H * S * S * h
    assert ledger.under(Convention(attention="exact")).flops == 4 * B * H * pairs * h
    assert ledger.under(HARDWARE_FLOPS).flops == 4 * B * H * blocks * h


def test_a_mask_that_differs_by_head():
    """The first head sees what was before, the second one everything."""

    def sees(_b, head, q, k):
        return (head == 1) | (q >= k)

    ledger = _ledger(sees, heads=H)
    pairs, _ = _count(sees, heads=H)
    assert ledger.under(Convention(attention="exact")).flops == 4 * B * pairs * h


def test_without_a_mask_everything_is_seen():
    ledger = _ledger(None)
    assert ledger.under(Convention(attention="exact")).flops == ledger.flops == 4 * B * H * S * S * h


def test_a_mask_of_data_is_counted_in_full():
    """The function reaches for a tensor that the step made: exact FLOPs are unknown, and it is said."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode, Recorder(fake_mode=mode) as recorder:
        document = torch.zeros(S).long()
        q = torch.zeros(B, H, S, h)
        sees = lambda _b, _h, q, k: document[q] == document[k]  # noqa: E731
        flex_attention(q, q, q, block_mask=create_block_mask(sees, None, None, S, S, "cpu"))
    ledger = recorder.trace().ledger
    assert ledger.flops == 4 * B * H * S * S * h
    assert ledger.under(Convention(attention="exact")).flops is None
    assert any("flex_attention" in assumption for assumption in ledger.assumptions)
