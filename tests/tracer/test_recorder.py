import sys

import pytest
import torch
from torch import nn
from torch._higher_order_ops import while_loop
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules import module as module_hooks
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint

from torchledger.ledger import HARDWARE_FLOPS, Convention
from torchledger.tracer import Recorder, trace

B, S, D, H = 2, 32, 64, 4
TOKENS = B * S


class Block(nn.Module):
    """A GPT-2 block: 2·tokens·(3·D² + D² + 8·D²) + 4·B·S·S·D FLOPs forward."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        """Attention and MLP."""
        q, k, v = (t.view(B, S, H, D // H).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        x = x + self.out(
            functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, S, D)
        )
        return x + self.down(functional.gelu(self.up(x)))


LINEAR_FLOPS = 2 * TOKENS * 12 * D * D
ATTENTION_FLOPS = 4 * B * S * S * D
BLOCK_FLOPS = LINEAR_FLOPS + ATTENTION_FLOPS
LAST_LINEAR_FLOPS = 2 * TOKENS * 4 * D * D


class Pair(nn.Module):
    """Two checkpointed blocks."""

    def __init__(self, *, use_reentrant):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.use_reentrant = use_reentrant

    def forward(self, x):
        """Both blocks, checkpointed."""
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.use_reentrant)
        return x


def _sum(output, _batch):
    return output.sum()


def _x(*, requires_grad=True):
    return torch.zeros(B, S, D, requires_grad=requires_grad)


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("kernel", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_checkpointing_is_told_apart_from_the_model(use_reentrant, kernel):
    """Model FLOPs leave recomputation out. Non-reentrant checkpointing stops before the last linear of each block.

    A fused kernel makes QKᵀ a second time in its backward: 2·B·S·S·D more executed FLOPs a block.
    """
    with sdpa_kernel(kernel):
        seen = trace(Pair(use_reentrant=use_reentrant), _x(), loss=_sum)
    assert seen.ledger.flops == 2 * 3 * BLOCK_FLOPS == 40_894_464
    recomputed = BLOCK_FLOPS - (0 if use_reentrant else LAST_LINEAR_FLOPS)
    again = 0 if kernel is SDPBackend.MATH else 2 * B * S * S * D
    executed = seen.ledger.under(HARDWARE_FLOPS).flops
    assert executed == 40_894_464 + 2 * (recomputed + again)
    expected = {
        (False, SDPBackend.MATH): 50_331_648,
        (True, SDPBackend.MATH): 54_525_952,
        (False, SDPBackend.FLASH_ATTENTION): 50_855_936,
        (True, SDPBackend.FLASH_ATTENTION): 55_050_240,
    }
    assert executed == expected[use_reentrant, kernel]


def test_recomputed_lines_stand_in_their_modules():
    """Recomputation goes to the modules that run again, with the source lines of their forward."""
    ledger = trace(Pair(use_reentrant=False), _x(), loss=_sum).ledger
    recomputed = ledger.where(phase="recompute", kind="matmul").folded()
    assert {line.module for line in recomputed} == {f"blocks.*.{name}" for name in ("qkv", "out", "up")}
    forward = {(line.module, line.source) for line in ledger.where(phase="forward", kind="matmul").folded()}
    assert {(line.module, line.source) for line in recomputed} <= forward


def test_each_checkpoint_keeps_the_random_state():
    """5,056 bytes a block, which torch allocates below every mode."""
    timeline = trace(Pair(use_reentrant=False), _x(), loss=_sum).timeline
    states = [
        b for b in timeline.blocks if b.op == "get_rng_state" and b.phase == "forward" and b.part == "activations"
    ]
    assert [block.num_bytes for block in states] == [5056] * 2 * 2  # two blocks, two steps


def test_phases_are_found_by_themselves():
    """Forward, backward, clipping and update, without a word from the user."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    with Recorder() as recorder:
        loss = model(torch.ones(2, 4)).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    calls = recorder.trace().calls
    phases = [call.phase for call in calls]
    assert phases == sorted(phases, key=["forward", "backward", "optimizer"].index)
    assert set(phases) == {"forward", "backward", "optimizer"}
    first_backward = calls[phases.index("backward")]
    assert first_backward.signature.op == "aten.ones_like.default", "the gradient of the loss itself"


def test_a_phase_can_be_named():
    with Recorder() as recorder:
        with recorder.phase("optimizer"):
            torch.ones(2).add_(1)
        torch.ones(3)
    assert [call.phase for call in recorder.trace().calls] == ["optimizer", "optimizer", "forward"]


def test_evaluation_after_a_backward_is_forward_again():
    """A module that runs without gradients after a backward pass is no optimizer."""
    model = nn.Linear(4, 4)
    with Recorder() as recorder:
        model(torch.ones(2, 4)).sum().backward()
        with torch.no_grad():
            model(torch.ones(2, 4))
    assert recorder.trace().calls[-1].phase == "forward"


def test_nothing_is_left_behind():
    """No hook, no mode, no replaced function; also when the step raises."""
    before = torch.get_rng_state
    optimizer_hooks = sys.modules["torch.optim.optimizer"]

    def state():
        return (
            dict(module_hooks._global_forward_hooks),
            dict(module_hooks._global_forward_pre_hooks),
            dict(optimizer_hooks._global_optimizer_pre_hooks),
            dict(optimizer_hooks._global_optimizer_post_hooks),
            torch._C._len_torch_dispatch_stack(),
        )

    clean = state()
    with Recorder():
        torch.ones(2)
    assert state() == clean
    with pytest.raises(KeyError), Recorder():
        raise KeyError("the user's")
    assert state() == clean
    assert torch.get_rng_state is before


def test_backward_stands_where_forward_did():
    """Module path and source line of a gradient are those of the forward operation it differentiates."""
    ledger = trace(Block(), _x(), loss=_sum).ledger
    for line in ledger.where(phase="backward", kind="matmul"):
        assert line.module in {"qkv", "out", "up", "down"}
        assert line.source in {forward.source for forward in ledger.where(phase="forward", module=line.module)}


def test_low_rank_layers():
    """Two layers x Wᵀ + x Aᵀ Bᵀ, W frozen, rank 4, x without gradient: every product by its own gradients."""
    rank = 4

    class LowRank(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = nn.Linear(D, D, bias=False).requires_grad_(requires_grad=False)
            self.down, self.up = nn.Linear(D, rank, bias=False), nn.Linear(rank, D, bias=False)

        def forward(self, x):
            return self.base(x) + self.up(self.down(x))

    model = nn.Sequential(LowRank(), LowRank())
    ledger = trace(model, _x(requires_grad=False), loss=_sum).ledger
    base, thin = 2 * TOKENS * D * D, 2 * TOKENS * D * rank
    forward = 2 * (base + 2 * thin)
    # First layer: both thin weights and the gradient between them; second: the inputs' gradients as well.
    backward = 3 * thin + (base + 4 * thin)
    assert ledger.flops == forward + backward == 1_933_312
    gradients = {key: part.flops for key, part in ledger.where(phase="backward").by("module", "gradient_of").items()}
    assert gradients["1.base", "input"] == base
    assert ("0.base", "input") not in gradients
    assert {key for key in gradients if key[1] == "weight" and gradients[key]} == {
        ("0.down", "weight"), ("0.up", "weight"), ("1.down", "weight"), ("1.up", "weight"),
    }  # fmt: skip


def test_a_weight_made_of_parameters_gets_weight_gradients():
    """W = U V, y = x W: the product of U and V has only weights, the product with x one of each."""

    class Factored(nn.Module):
        def __init__(self):
            super().__init__()
            self.u, self.v = nn.Parameter(torch.zeros(D, 8)), nn.Parameter(torch.zeros(8, D))

        def forward(self, x):
            return x @ (self.u @ self.v)

    ledger = trace(Factored(), _x(), loss=_sum).ledger.where(kind="matmul", phase="backward")
    flops = {key: part.flops for key, part in ledger.by("gradient_of").items()}
    assert flops == {"input": 2 * TOKENS * D * D, "weight": 2 * TOKENS * D * D + 2 * 2 * D * 8 * D}


def test_a_tied_head_is_a_product_with_a_weight():
    """The embedding's table used as head: one input and one weight gradient, in the root module."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(16, D)

        def forward(self, ids):
            return functional.linear(self.embedding(ids), self.embedding.weight)

    seen = trace(Tied(), torch.zeros(B, S, dtype=torch.int64), loss=_sum)
    assert seen.num_parameters == 16 * D
    flops = {key: part.flops for key, part in seen.ledger.where(kind="matmul").by("phase", "gradient_of").items()}
    head = 2 * TOKENS * D * 16
    assert flops == {("forward", "none"): head, ("backward", "input"): head, ("backward", "weight"): head}


def test_casts_of_weights_are_still_weights():
    """Under autocast the product runs on a bf16 copy of the weight; its gradients are told apart all the same."""
    ledger = trace(nn.Linear(D, D), _x(), loss=lambda y, _: y.float().sum(), precision="bf16").ledger
    products = {(line.phase, line.gradient_of): line.number_format for line in ledger.where(kind="matmul")}
    assert products == {("forward", "none"): "bf16", ("backward", "input"): "bf16", ("backward", "weight"): "bf16"}


def test_a_module_can_call_its_products_attention():
    """Products in a module with `ledger_kind` are of that kind, forward and backward, all gradients of inputs."""

    class Core(nn.Module):
        ledger_kind = "attention"

        def forward(self, q, k):
            return torch.softmax(q @ k.transpose(-1, -2), -1) @ k

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.project, self.core = nn.Linear(D, D), Core()

        def forward(self, x):
            return self.core(self.project(x), x)

    ledger = trace(Net(), _x(), loss=_sum).ledger
    by_kind = {key: part.flops for key, part in ledger.by("module", "kind", "gradient_of").items() if part.flops}
    attention = 2 * 2 * B * S * S * D
    linear = 2 * TOKENS * D * D
    assert by_kind == {
        ("core", "attention", "none"): attention,
        ("core", "attention", "input"): 2 * attention,
        ("project", "matmul", "none"): linear,
        ("project", "matmul", "input"): linear,
        ("project", "matmul", "weight"): linear,
    }


def test_a_shared_module_goes_by_the_name_it_runs_under():
    class Twice(nn.Module):
        def __init__(self, shared):
            super().__init__()
            self.left, self.right = nn.Sequential(shared), nn.Sequential(shared)

        def forward(self, x):
            return self.right(self.left(x))

    shared = nn.Linear(D, D, bias=False)
    ledger = trace(Twice(shared), _x(), loss=_sum).ledger.where(kind="matmul", phase="forward")
    assert [line.module for line in ledger] == ["left.0", "right.0"]


def test_an_operation_without_a_rule_is_named_and_nothing_is_summed_over_it():
    """FLOPs unknown, bytes known, the ledger incomplete."""

    class Exponential(nn.Module):
        def forward(self, x):
            return torch.linalg.matrix_exp(x)

    ledger = trace(Exponential(), torch.zeros(8, 8, requires_grad=True), loss=_sum).ledger
    assert not ledger.is_complete
    assert ledger.flops is None
    line = next(line for line in ledger.unknown_lines if line.phase == "forward")
    assert (line.op, line.kind, line.work.bytes_read) == ("aten.linalg_matrix_exp.default", "unknown", 8 * 8 * 4)


def test_parts_of_memory():
    """Parameters, gradients, optimizer state, inputs and buffers are named; activations outlive the forward pass."""
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8, affine=False))
    seen = trace(model, torch.zeros(4, 8), loss=_sum, optimizer=torch.optim.AdamW)
    named = {(block.part, block.name) for block in seen.timeline.blocks if block.name}
    assert ("parameters", "0.weight") in named
    assert ("gradients", "0.weight") in named
    assert {("optimizer state", "0.weight.exp_avg"), ("optimizer state", "0.bias.step")} <= named
    assert ("buffers", "1.running_mean") in named
    assert [block.num_bytes for block in seen.timeline.blocks if block.part == "inputs"] == [4 * 8 * 4]
    gradients = [b for b in seen.timeline.blocks if b.part == "gradients"]
    assert all(block.freed is not None for block in gradients), "zero_grad frees them"


def test_real_tensors_run_as_they_would_without_us():
    """The recorder changes no value."""
    torch.manual_seed(0)
    model, x = Block(), torch.randn(B, S, D)
    expected = model(x).sum()
    with Recorder():
        seen = model(x).sum()
    assert torch.equal(seen, expected)


@pytest.mark.parametrize("says", [True, False])
def test_exact_attention_is_what_the_module_says_of_its_mask_and_else_unknown(says):
    """A mask is data: with `ledger_visible` 36 of 64 pairs count, without it nothing is told."""
    T = 8

    class Core(nn.Module):
        ledger_kind = "attention"

        def forward(self, x):
            if says:
                self.ledger_visible = (T * (T + 1) // 2, T * T)
            return torch.softmax(x @ x.transpose(-1, -2), -1) @ x

    x = torch.zeros(2, T, D, requires_grad=True)
    attention = trace(Core(), x, loss=_sum).ledger.where(kind="attention")
    full = 2 * 3 * 2 * T * T * D * 2
    assert attention.flops == full
    assert attention.under(Convention(attention="exact")).flops == (full * 36 // 64 if says else None)


def test_exact_attention_under_a_mask_tensor_is_unknown():
    q = torch.zeros(B, H, S, D // H)
    with Recorder() as recorder:
        functional.scaled_dot_product_attention(q, q, q, attn_mask=torch.zeros(S, S))
    attention = recorder.trace().ledger.where(kind="attention")
    assert attention.flops == ATTENTION_FLOPS
    assert attention.total.flops_exact is None


def test_a_wrapper_of_tensors_is_seen_as_what_it_wraps():
    """A pair of tensors behind one: the product of two pairs is two products."""
    a = TwoTensor(torch.ones(4, 4), torch.ones(4, 4))
    with Recorder() as recorder:
        a @ a
    assert recorder.trace().ledger.flops == 2 * 2 * 4**3


@pytest.mark.filterwarnings("ignore")  # torch's own about running it without its compiler
def test_a_higher_order_operation_is_named():
    """A loop whose end is data: what one iteration costs is all that can be told."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode, Recorder(fake_mode=mode) as recorder:
        while_loop(lambda x: x.sum() < 9, lambda x: (x @ x,), (torch.rand(4, 4),))
    line = next(line for line in recorder.trace().ledger.unknown_lines)
    assert (line.op, line.kind, line.work.flops_full) == ("while_loop", "unknown", None)
    assert dict(line.shape) == {"flops_per_iteration": 2 * 4**3}


def test_an_interrupt_while_it_comes_leaves_nothing_behind(monkeypatch):
    """Ctrl-C between two hooks: those that were set are taken away."""

    def interrupted(_recorder):
        raise KeyboardInterrupt

    monkeypatch.setattr("torchledger.tracer.recorder.watching", interrupted)
    before = (torch.get_rng_state, len(module_hooks._global_forward_hooks))
    with pytest.raises(KeyboardInterrupt), Recorder():
        pass
    assert before == (torch.get_rng_state, len(module_hooks._global_forward_hooks))
