import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional

from torchledger.tracer import Recorder, trace_step
from torchledger.tracer.fake import as_if_real
from torchledger.tracer.memo import Memo

ROWS, WIDTH = 6, 8


class Attention(nn.Module):
    """Views, splits, fused attention, dropout, in-place operations, a cast."""

    def __init__(self):
        super().__init__()
        self.qkv, self.norm = nn.Linear(WIDTH, 3 * WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x):
        """Two heads of four."""
        q, k, v = (part.view(2, 3, 2, 4).transpose(1, 2) for part in self.qkv(self.norm(x)).split(WIDTH, dim=-1))
        y = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 3, WIDTH)
        return functional.dropout((y + 1.0).mul_(2.0), 0.1).bfloat16().float() + x


class Recurrent(nn.Module):
    """Results that share a storage, and operations with several results."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRU(WIDTH, WIDTH, batch_first=True)

    def forward(self, x):
        """Both results."""
        y, h = self.cell(x)
        return y + h.transpose(0, 1).unbind(0)[0] + torch.cat(x.chunk(2, dim=-1), dim=-1)


class Convolution(nn.Module):
    """Operations whose results are partly nothing."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), nn.BatchNorm1d(4), nn.Conv1d(4, 3, 1, bias=False))

    def forward(self, x):
        """The same shape."""
        return self.layers(x)


def _recorded(make, optimizer, *, with_memo):
    """Two training steps on fake tensors, results made from memory or by torch."""
    mode = FakeTensorMode()
    with as_if_real(), mode, Recorder(fake_mode=mode if with_memo else None) as recorder:
        with recorder.phase("build"):
            model, x = make(), torch.zeros(2, 3, WIDTH)
            update = optimizer(model.parameters())
        for _ in range(2):
            model(x).square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            update.step()
            update.zero_grad()
    return recorder.trace()


@pytest.mark.parametrize("make", [Attention, Recurrent, Convolution])
@pytest.mark.parametrize(
    "optimizer",
    [torch.optim.AdamW, lambda p: torch.optim.AdamW(p, foreach=True), lambda p: torch.optim.AdamW(p, fused=True)],
    ids=["loop", "foreach", "fused"],
)
def test_made_from_memory_or_run_by_torch_is_the_same(make, optimizer):
    """Every call, block and line."""
    assert _recorded(make, optimizer, with_memo=True) == _recorded(make, optimizer, with_memo=False)


@pytest.fixture
def mode():
    with FakeTensorMode() as mode:
        yield mode


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x + 1,
        lambda x: x.t(),
        lambda x: x[1:],
        lambda x: x.add_(1),
        lambda x: torch.split(x, 2),
        lambda x: torch.var_mean(x, dim=0),
        lambda x: x.bfloat16(),
    ],
)
def test_a_result_made_again_has_the_geometry_of_the_first(mode, run):
    memo, x = Memo(mode), torch.zeros(ROWS, WIDTH)
    result = run(x)
    again = memo.make(memo.learn(result, [x]), [x])
    first, second = ([value] if isinstance(value, torch.Tensor) else list(value) for value in (result, again))
    assert [type(tensor) for tensor in second] == [FakeTensor] * len(first)
    for one, two in zip(first, second, strict=True):
        assert (one.shape, one.stride(), one.dtype, one.device) == (two.shape, two.stride(), two.dtype, two.device)
        assert one.storage_offset() == two.storage_offset()
        assert one.untyped_storage().nbytes() == two.untyped_storage().nbytes()
        shared = [t.untyped_storage()._cdata == x.untyped_storage()._cdata for t in (one, two)]
        assert shared[0] == shared[1]


def test_a_number_that_torch_knows_is_not_made_from_memory(mode):
    """A fake tensor made from a number keeps it, and what follows may ask for its value."""
    memo, number = Memo(mode), torch.tensor(2.0)
    assert not memo.knows([number])
    assert memo.knows([torch.zeros(2)])
    assert memo.learn(number, []) is None


def test_another_default_dtype_is_another_result(mode):
    """An integer divided by a number is of the default dtype."""
    memo = Memo(mode)
    try:
        torch.set_default_dtype(torch.float64)
        assert not memo.knows([torch.zeros(2)])
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_real_tensor_among_fake_ones_is_not_made_from_memory(mode):
    with torch.utils._python_dispatch._disable_current_modes():
        real = torch.zeros(2)
    assert not Memo(mode).knows([real])


def test_views_inside_inference_mode():
    """A view of a normal tensor is a normal tensor there, one of a tensor that was made there is not."""
    model, batch, seen = nn.Linear(2, 2), torch.ones(1, 2), []

    def step():
        with torch.inference_mode():
            for _ in range(2):  # torch's own, and from memory
                views = (model.weight.detach(), model.weight.view(4), model.weight.t(), torch.zeros(2).view(1, 2))
                seen.append([view.is_inference() for view in views])
        model(batch).sum().backward()
        assert seen[-2:] == [[False, False, False, True]] * 2

    trace_step(step)


def test_a_fake_on_meta_stays_there():
    """What is made without memory, and what is made of it, is on meta also where results are made from memory."""

    def build():
        for _ in range(2):  # torch's own, and from memory
            empty = torch.empty(4, device="meta")
            made = (
                empty.detach(),
                nn.Parameter(empty),
                empty.view(2, 2),
                torch.zeros(2).to("meta").detach(),
                empty + 1,
            )
            assert [each.device.type for each in made] == ["meta"] * 5
        model = nn.Linear(2, 2)
        return lambda: model(torch.zeros(1, 2)).sum().backward()

    trace_step(build)
