"""What-ifs on no memory against the same recipe run for real: the allocator's peak, byte for byte on this machine.

The real run checkpoints, accumulates and keeps gradients itself; the prediction adds what kernels were probed to hold.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger.meter import allocations, probe
from torchledger.tracer.checkpointing import checkpointed
from torchledger.tracer.plain_step import StepOptions
from torchledger.tracer.whatif import Change, optimizer_named, traced_with

B, T, D, V, L = 4, 32, 64, 96, 3


class Block(nn.Module):
    """Attention and an MLP."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        """[b, t, d] -> [b, t, d]."""
        b, t, d = x.shape
        q, k, v = (each.view(b, t, 4, d // 4).transpose(1, 2) for each in self.qkv(self.norm(x)).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, d))
        return x + self.down(functional.gelu(self.up(x)))


class Language(nn.Module):
    """Token ids [b, t] -> logits."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(V, D), nn.Linear(D, V)
        self.layers = nn.ModuleList(Block() for _ in range(L))

    def forward(self, ids):
        """Logits."""
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def _loss(logits, ids):
    return functional.cross_entropy(logits.flatten(0, 1), ids.flatten())


def _forward_backward(model, ids, precision, micro_batches):
    """The output has a name, so it lives until the backward pass is over."""
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        output = model(ids)
        loss = _loss(output, ids)
    if micro_batches > 1:
        loss = loss / micro_batches
    loss.backward()


def _really(change):
    """Two steps as a user would write them."""
    model = Language()
    checkpointed(model, change.checkpoint, reentrant=change.reentrant)
    ids = torch.zeros(change.micro_batch or B, change.sequence_length or T, dtype=torch.long)
    optimizer = optimizer_named(change.optimizer or "adamw")(model.parameters())
    micro_batches = change.accumulation_steps or 1
    for _ in range(2):
        for _ in range(micro_batches):
            _forward_backward(model, ids, change.precision, micro_batches)
        optimizer.step()
        optimizer.zero_grad(set_to_none=change.set_to_none is not False)


@pytest.mark.parametrize(
    "change",
    [
        Change(),
        Change(checkpoint="full"),
        pytest.param(Change(checkpoint="full", reentrant=True), marks=pytest.mark.proof),
        pytest.param(Change(checkpoint=2), marks=pytest.mark.proof),
        Change(checkpoint="selective"),
        pytest.param(Change(checkpoint="full", precision="bf16"), marks=pytest.mark.proof),
        pytest.param(Change(micro_batch=2, accumulation_steps=3), marks=pytest.mark.proof),
        pytest.param(Change(sequence_length=48, optimizer="sgd"), marks=pytest.mark.proof),
        Change(optimizer="momentum:loop", set_to_none=False),
        pytest.param(Change(optimizer="adafactor"), marks=pytest.mark.proof),
        pytest.param(Change(optimizer="adamw:fused", precision="bf16"), marks=pytest.mark.proof),
    ],
    ids=str,
)
def test_the_peak_of_a_what_if_is_the_allocators(change):
    """Parameters are made inside, as the real run makes them."""
    options = StepOptions(loss=_loss, optimizer=torch.optim.AdamW)
    seen = traced_with(Language(), torch.zeros(B, T, dtype=torch.long), change, options)
    inside = probe(call.signature for call in seen.calls).by_call(seen)
    _really(change)  # what torch keeps from a first run is there now
    assert seen.timeline.peak(internal=inside).peak_bytes == allocations(lambda: _really(change)).peak_bytes
