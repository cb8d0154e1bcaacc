"""Grouped products of formats that torch's shape rule refuses and its kernels run."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from torchledger.tracer import Recorder, trace, trace_step

ENDS = [16, 32, 48, 64]
CASES = {
    "rows shared out": ((64, 32), (4, 32, 16), True),
    "columns shared out": ((4, 16, 32), (32, 64), True),
    "contracted index shared out": ((16, 64), (64, 32), True),
    "a stack of each": ((4, 16, 32), (4, 32, 16), False),
}


@pytest.mark.parametrize("name", CASES)
def test_shapes_are_those_of_the_real_kernel(name):
    """Size, stride and dtype, as the CPU returns them for fp32."""
    left, right, grouped = CASES[name]

    def run():
        ends = torch.tensor(ENDS, dtype=torch.int32) if grouped else None
        return functional.grouped_mm(torch.zeros(left), torch.zeros(right), offs=ends)

    real = run()
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode, Recorder(fake_mode=mode) as recorder:
        fake = run()
    assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)
    (line,) = recorder.trace().ledger.where(kind="matmul")
    # Two tensors of rank 3 are a product each; otherwise every row, column or index belongs to one group.
    flops = {"a stack of each": 4 * 2 * 16 * 32 * 16, "contracted index shared out": 2 * 16 * 64 * 32}
    shared = {"rows shared out": 2 * 64 * 32 * 16, "columns shared out": 2 * 16 * 32 * 64}
    assert line.work.flops_full == (flops | shared)[name]


def test_a_padded_batch_of_the_encoder_in_evaluation():
    """The real one would cut the padding off, whose length is data: it is computed too, and that is said."""
    encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2).eval()
    x, padded = torch.zeros(2, 4, 16), torch.zeros(2, 4, dtype=torch.bool)

    @torch.no_grad()
    def step():
        encoder(x, src_key_padding_mask=padded)

    seen = trace_step(step)
    assert seen.ledger.is_complete
    # A layer: 8 tokens by 4·16² + 2·16·32, and two products of 2·2·4·4·8 multiply-adds.
    assert seen.ledger.flops == 2 * (2 * 8 * (4 * 16 * 16 + 2 * 16 * 32) + 2 * 2 * (2 * 2 * 4 * 4 * 8))
    assert any("padded tokens" in assumption for assumption in seen.assumptions)


class Ctc(torch.nn.Module):
    """CTC loss of 9 frames and 2 sequences, whose lengths come with the batch."""

    def __init__(self):
        super().__init__()
        self.scores = torch.nn.Linear(4, 5)

    def forward(self, x, targets, frames, lengths):
        """The loss of one target of 3 tokens for each sequence, padded or end to end."""
        return functional.ctc_loss(self.scores(x).log_softmax(-1), targets, frames, lengths)


@pytest.mark.parametrize("shape", [(2, 3), (6,)], ids=["padded", "end to end"])
def test_ctc_loss_of_lengths_that_are_data(shape):
    """Unknown targets are as long as they may be; log α is of 9 frames and 2·3 + 1 states, as in a real run."""
    batch = (
        torch.zeros(9, 2, 4), torch.ones(shape, dtype=torch.long), torch.tensor([9, 9]), torch.tensor([3, 3]),
    )  # fmt: skip
    seen = trace(Ctc(), batch, loss=lambda loss, _: loss)
    assert not any("their lengths are data" in text for text in seen.assumptions)
    unknown = tuple(tensor.to("meta") for tensor in batch)
    blind = trace(Ctc(), unknown, loss=lambda loss, _: loss)
    assert any("their lengths are data" in text for text in blind.assumptions)
    with Recorder() as recorder:
        Ctc()(*batch)

    def made(timeline):
        return {block.num_bytes for block in timeline.blocks if "_ctc_loss" in block.op and "backward" not in block.op}

    assert made(seen.timeline) == made(blind.timeline) == made(recorder.trace().timeline) == {2 * 4, 2 * 9 * 7 * 4}
