import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger.auditor.init_uses import Uses


def _uses(model, *inputs):
    with Uses(model, lambda: "") as watch:
        model(*inputs)
    return {use.name: use for use in watch.seen.uses.values()}


class _Own(nn.Module):
    """x @ W with W [in, out], as notes write it."""

    def __init__(self):
        super().__init__()
        self.right = nn.Parameter(torch.randn(48, 16))
        self.left = nn.Parameter(torch.randn(8, 16))
        self.experts = nn.Parameter(torch.randn(3, 8, 5))

    def forward(self, x):
        h = (self.left @ (x @ self.right).t()).t()
        return torch.bmm(h.expand(3, *h.shape), self.experts)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_fan_in_is_what_one_output_sums_over(precision):
    """Of x @ W it is W's first axis, of W @ x the last; views, transposes and autocast's copies are still W."""
    model = _Own()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        uses = _uses(model, torch.randn(10, 48))
    fans = {name: (use.fan_in, use.fan_out, use.out_axis) for name, use in uses.items()}
    assert fans == {"right": (48, 16, 1), "left": (16, 8, 0), "experts": (8, 5, 1)}


def test_fans_of_layers_are_those_of_torch():
    """Linear, convolutions and attention have the fans by which torch's own initialisers draw them."""
    for layer, x in (
        (nn.Linear(48, 16), torch.randn(10, 48)),
        (nn.Conv2d(6, 8, 3), torch.randn(2, 6, 9, 9)),
        (nn.Conv2d(6, 8, 3, groups=2), torch.randn(2, 6, 9, 9)),
        (nn.Conv1d(6, 8, 5), torch.randn(2, 6, 9)),
    ):
        use = _uses(layer, x)["weight"]
        fan_in, fan_out = nn.init._calculate_fan_in_and_fan_out(layer.weight)
        groups = getattr(layer, "groups", 1)
        assert (use.fan_in, use.fan_out) == (fan_in, fan_out // groups)
    attention = nn.MultiheadAttention(32, 4, batch_first=True)
    x = torch.randn(2, 10, 32)
    uses = _uses(attention, x, x, x)
    assert (uses["in_proj_weight"].fan_in, uses["in_proj_weight"].fan_out) == (32, 96)


def test_a_transposed_convolution_sums_over_one_kernel_in_stride_squared():
    """With stride 2 and a 4×4 kernel, 16/4 = 4 of its places meet in one output, for each of 6 inputs."""
    use = _uses(nn.ConvTranspose2d(6, 8, 4, stride=2), torch.randn(2, 6, 9, 9))["weight"]
    assert use.fan_in == 6 * 4


class _Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.up = nn.Linear(16, 16), nn.Linear(16, 32)
        self.gate, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.adapter = nn.Linear(16, 16, bias=False)

    def forward(self, x):
        q = self.query(x)
        mixed = q * torch.cos(x[:1]) + torch.cat((q[..., 8:], q[..., :8]), -1)
        h = functional.silu(self.gate(mixed)) * self.up(mixed)
        return x + functional.dropout(self.down(h) + 0.5 * self.adapter(x), 0.1, training=True)


def test_what_writes_to_the_stream_is_known_by_the_addition():
    """The last matrix of a branch is added to the stream, through dropout, scales and other matrices beside it."""
    uses = _uses(_Block(), torch.randn(10, 16))
    assert {name for name, use in uses.items() if use.is_residual} == {"down.weight", "adapter.weight"}
    assert uses["adapter.weight"].is_joined


def test_a_polynomial_of_one_output_is_no_stream():
    """GELU by its formula adds a number to its own cube."""
    model = nn.Sequential(nn.Linear(16, 16))
    model.forward = lambda x: (h := model[0](x)) + 0.044715 * torch.pow(h, 3.0)
    use = _uses(model, torch.randn(10, 16))["0.weight"]
    assert not use.is_residual
    assert not use.is_joined


def test_tied_tables_have_both_uses():
    """An embedding that is the head as well is looked up in, fan-in 1, and multiplied with, fan-in the hidden size."""
    table = nn.Embedding(50, 16)
    with Uses(table, lambda: "") as watch:
        table(torch.arange(20)) @ table.weight.t()
    found = {kind: (use.fan_in, use.fan_out) for (_, kind), use in watch.seen.uses.items()}
    assert found == {"embedding": (1, 16), "matmul": (16, 50)}


def test_outputs_that_are_the_same_for_every_position_are_counted():
    """Of an input whose rows are alike all 8 outputs are; of another none; of fewer than eight rows nothing is said."""
    layer = nn.Linear(4, 8)
    assert _uses(layer, torch.ones(10, 4))["weight"].num_constant == 8
    assert _uses(layer, torch.randn(10, 4))["weight"].num_constant == 0
    assert _uses(layer, torch.ones(7, 4))["weight"].num_constant is None


def test_a_matrix_times_a_vector_is_a_use_too():
    """W @ v of [6, 9] and [9], as spectral normalisation has it: one output sums over 9, and 6 are written."""
    use = _uses(_Vector(), torch.randn(9))["weight"]
    assert (use.fan_in, use.fan_out, use.out_axis) == (9, 6, 0)


class _Vector(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 9))

    def forward(self, x):
        return torch.mv(self.weight, x)
