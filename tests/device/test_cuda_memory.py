"""The trace for CUDA against a GPU: allocated bytes as its caching allocator counts them. Skips itself without one."""

import contextlib

import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger.machine import match
from torchledger.tracer import trace_step
from torchledger.tracer.targets.cuda.scratch import inside_by_call

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]

BLOCK_BYTES = 512  # the allocator rounds every request up to this (c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize)
B, T, D, H, VOCABULARY = 4, 256, 256, 4, 4096


class Model(nn.Module):
    """An embedding, one block with attention, a loss over the vocabulary."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, D)
        self.norm = nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.head = nn.Linear(D, VOCABULARY)

    def forward(self, tokens):
        """Scores of the next token."""
        x = self.embedding(tokens)
        q, k, v = (t.view(B, T, H, D // H).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(x + self.out(attended.transpose(1, 2).reshape(B, T, D)))


def _build(precision, fused):
    def build():
        model = Model().to("cuda")
        optimizer = torch.optim.AdamW(model.parameters(), fused=fused or None)
        tokens = torch.zeros(B, T, dtype=torch.long, device="cuda")

        def step():
            autocast = torch.autocast("cuda", torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()
            with autocast:
                loss = functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

        return step

    return build


def _rounded(trace):
    """The peak of the second step with every block rounded up as the allocator does."""
    position, live = trace.timeline.marks["step 2"], []
    deltas = [0] * (trace.timeline.num_events + 1)
    for block in trace.timeline.blocks:
        size = 0 if block.on_host else -(-block.num_bytes // BLOCK_BYTES) * BLOCK_BYTES
        deltas[block.allocated + 1] += size
        if block.freed is not None:
            deltas[block.freed + 1] -= size
    total = 0
    for delta in deltas:
        total += delta
        live.append(total)
    inside = inside_by_call(trace.calls, trace.timeline)
    before = {index: trace.timeline.call_positions[index] for index in inside}
    return max([*live[position:], *(live[at] + inside[i] for i, at in before.items() if at >= position)])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("fused", [False, True])
def test_peak_of_a_training_step(precision, fused):
    """Allocated at the peak of the second step, within 1 % of what the GPU's allocator counts."""
    chip = match(torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).total_memory)
    assert chip is not None, "the GPU is in the catalog"
    predicted = _rounded(trace_step(_build(precision, fused), steps=2, target="cuda", chip=chip))
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    step = _build(precision, fused)()
    step()
    torch.cuda.reset_peak_memory_stats()
    step()
    measured = torch.cuda.max_memory_allocated() - before
    assert predicted == pytest.approx(measured, rel=0.01)
