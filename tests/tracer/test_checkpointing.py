"""Which modules are blocks, and what checkpointing does to them."""

import pytest
import torch
from torch import nn

from torchledger.tracer import TraceError
from torchledger.tracer.checkpointing import blocks_of, checkpointed

D = 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(D, D), nn.Linear(D, D))

    def forward(self, x):
        """Two layers with a way around."""
        return x + self.inner(x).tanh()


def test_blocks_are_the_members_of_the_outermost_lists():
    """An encoder's and a decoder's; not the layers inside a block, nor a list of two kinds."""
    encoder, decoder = nn.ModuleList(Block() for _ in range(2)), nn.Sequential(Block(), Block(), Block())
    model = nn.ModuleDict({"encoder": encoder, "decoder": decoder, "odd": nn.ModuleList([Block(), nn.Linear(D, D)])})
    assert blocks_of(model) == [*encoder, *decoder]
    assert blocks_of(nn.Sequential(nn.Linear(D, D), nn.Linear(D, D))) == []


@pytest.mark.parametrize("policy", ["full", 2, "selective", ("aten.mm.default",)])
def test_gradients_are_the_same_to_the_bit(policy):
    """On real tensors: what is computed again is what was computed."""
    torch.manual_seed(0)
    model, x = nn.Sequential(Block(), Block(), Block()), torch.randn(3, D)
    model(x).square().sum().backward()
    plain = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    checkpointed(model, policy)
    model(x).square().sum().backward()
    assert all(torch.equal(one, p.grad) for one, p in zip(plain, model.parameters(), strict=True))


def test_every_nth_block_is_changed():
    model = nn.Sequential(Block(), Block(), Block())
    checkpointed(model, 2)
    assert ["forward" in vars(block) for block in model] == [True, False, True]
    untouched = nn.Sequential(Block(), Block())
    checkpointed(untouched, "none")
    assert not any("forward" in vars(block) for block in untouched)


def test_hooks_of_a_block_run_once():
    """Forward and recomputation are one call of the block to whoever watches."""
    model, x = nn.Sequential(Block(), Block()), torch.randn(3, D, requires_grad=True)
    calls = []
    model[0].register_forward_hook(lambda *_: calls.append(1))
    checkpointed(model, "full")
    model(x).sum().backward()
    assert calls == [1]


def test_impossible_policies():
    with pytest.raises(TraceError, match="no repeated blocks"):
        checkpointed(nn.Linear(D, D), "full")
    with pytest.raises(TraceError, match="there is no operation 'mm'"):
        checkpointed(nn.Sequential(Block(), Block()), ("mm",))
