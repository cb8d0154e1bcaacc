"""A step that the user already has, over real models: traced on copies, everything left bit for bit as it was."""

import copy
import functools
import random
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from torchledger.tracer import TraceError, trace, trace_step

IN, HIDDEN, OUT, ROWS = 8, 16, 4, 5
COUNT = {"steps": 0}
TOTAL = 0
SCALE = torch.full((ROWS, OUT), 2.0)


class Net(nn.Module):
    """Batch statistics, dropout and a counter: everything that a step changes."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(IN, HIDDEN), nn.BatchNorm1d(HIDDEN)
        self.dropout, self.last = nn.Dropout(0.5), nn.Linear(HIDDEN, OUT)
        self.calls = []

    def forward(self, x):
        """Logits."""
        self.calls.append(x)
        return self.last(self.dropout(functional.relu(self.norm(self.first(x)))))


MATMULS = 2 * ROWS * (IN * HIDDEN + HIDDEN * OUT)
STEP = 3 * MATMULS - 2 * ROWS * IN * HIDDEN  # the first layer's input needs no gradient


class State:
    """What a step could disturb, as it is now."""

    def __init__(self, *models, optimizers=()):
        self.values = [
            [(name, value.detach().clone()) for name, value in model.state_dict().items()] for model in models
        ]
        self.ids = [[id(p) for p in (*model.parameters(), *model.buffers())] for model in models]
        self.gradients = [[None if p.grad is None else p.grad.clone() for p in model.parameters()] for model in models]
        self.modes = [[module.training for module in model.modules()] for model in models]
        self.hooks = [
            [(dict(m._forward_hooks), dict(m._forward_pre_hooks), dict(m._backward_hooks)) for m in model.modules()]
            for model in models
        ]
        self.versions = [[p._version for p in model.parameters()] for model in models]
        self.optimizers = [copy.deepcopy(optimizer.state_dict()) for optimizer in optimizers]
        self.streams = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002  # the global stream
        self.settings = (
            torch.get_default_dtype(),
            torch.is_grad_enabled(),
            torch.get_num_threads(),
            torch.get_float32_matmul_precision(),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_anomaly_enabled(),
            torch.is_autocast_enabled("cpu"),
            torch.backends.cudnn.benchmark,
        )


def _same(one, other):
    if isinstance(one, torch.Tensor):
        return type(one) is type(other) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other


def _assert_unchanged(before, after):
    for name, value in vars(before).items():
        assert _same(value, getattr(after, name)), name


def _training():
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    x, y = torch.randn(ROWS, IN), torch.randint(OUT, (ROWS,))
    losses = []

    def step():
        global TOTAL  # noqa: PLW0603  # a user's script counts so
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x) * SCALE, y)
        loss.backward()
        optimizer.step()
        losses.append(loss)
        COUNT["steps"] += 1
        TOTAL += 1
        SCALE.mul_(2)
        torch.manual_seed(7)
        random.random()
        np.random.rand()  # noqa: NPY002  # the global stream
        torch.set_float32_matmul_precision("medium")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = True
        model.eval()

    step()  # once for real: optimizer state, gradients and statistics are there
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.benchmark = False
    torch.set_float32_matmul_precision("highest")
    model.train()
    return model, optimizer, losses, step


def test_a_plain_step_is_traced_and_everything_is_as_it_was():
    """Weights, statistics, gradients, optimizer state, lists, globals, streams and settings, bit for bit."""
    model, optimizer, losses, step = _training()
    before, calls, total, scale = State(model, optimizers=[optimizer]), list(model.calls), TOTAL, SCALE.clone()
    kept_losses, count, version = list(losses), dict(COUNT), SCALE._version
    seen = trace_step(step)
    _assert_unchanged(before, State(model, optimizers=[optimizer]))
    assert [id(c) for c in model.calls] == [id(c) for c in calls]
    assert [id(loss) for loss in losses] == [id(loss) for loss in kept_losses]
    assert (TOTAL, COUNT, SCALE._version) == (total, count, version)
    assert torch.equal(SCALE, scale)
    assert seen.ledger.where(kind="matmul").flops == STEP
    assert seen.num_parameters == sum(p.numel() for p in model.parameters())
    state = [b for b in seen.timeline.live_at(0 + seen.step_events) if b.part == "optimizer state"]
    assert sum(b.num_bytes for b in state if b.shape) == 2 * 4 * seen.num_parameters
    step()  # and it still trains
    assert total + 1 == TOTAL


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), RecursionError("deep")])
def test_everything_is_as_it_was_when_the_step_raises_midway(error):
    """After the backward pass and half of the updates."""
    model, optimizer, _, _ = _training()
    x = torch.randn(ROWS, IN)
    hooks = []

    def step():
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(3)
        hooks.append(model.register_forward_hook(lambda *_: None))
        model(x).sum().backward()
        optimizer.step()
        model.eval()
        raise error

    before = State(model, optimizers=[optimizer])
    with pytest.raises((type(error), TraceError)):
        trace_step(step)
    _assert_unchanged(before, State(model, optimizers=[optimizer]))
    assert hooks == []


def test_a_step_that_is_a_method_or_a_partial():
    """The trainer's counter, its lock and its model stay; the lock is shared, for it cannot be copied."""

    class Trainer:
        def __init__(self):
            self.model, self.lock, self.number = nn.Linear(IN, OUT), threading.Lock(), 0
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

        def step(self, x=None):
            with self.lock:
                self.number += 1
            self._loss(x).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

        def _loss(self, x):
            return self.model(x).square().mean()

    trainer, x = Trainer(), torch.randn(ROWS, IN)
    before = State(trainer.model, optimizers=[trainer.optimizer])
    seen = trace_step(functools.partial(trainer.step, x))
    assert seen.ledger.where(kind="matmul").flops == 2 * 2 * ROWS * IN * OUT  # forward and weight gradient
    assert trainer.number == 0
    trainer.step.__func__.__defaults__ = (x,)
    assert trace_step(trainer.step).ledger == seen.ledger
    _assert_unchanged(before, State(trainer.model, optimizers=[trainer.optimizer]))


def test_two_models_and_two_optimizers_go_by_their_variables():
    """A GAN's step: discriminator on real and fake, generator through the discriminator."""
    generator, discriminator = nn.Linear(IN, HIDDEN), nn.Linear(HIDDEN, 1)
    for_g = torch.optim.Adam(generator.parameters())
    for_d = torch.optim.Adam(discriminator.parameters())
    noise, real = torch.randn(ROWS, IN), torch.randn(ROWS, HIDDEN)

    def step():
        for_d.zero_grad()
        false = generator(noise)
        loss = (
            functional.softplus(discriminator(false.detach())).mean() + functional.softplus(-discriminator(real)).mean()
        )
        loss.backward()
        for_d.step()
        for_g.zero_grad()
        functional.softplus(-discriminator(false)).mean().backward()
        for_g.step()

    before = State(generator, discriminator, optimizers=[for_g, for_d])
    seen = trace_step(step)
    _assert_unchanged(before, State(generator, discriminator, optimizers=[for_g, for_d]))
    g, d = 2 * ROWS * IN * HIDDEN, 2 * ROWS * HIDDEN
    by = {name: ledger.flops for name, ledger in seen.ledger.where(kind="matmul").by("module").items()}
    # generator: forward and weight gradient; discriminator: three forwards, three weight gradients, one input gradient
    assert by == {"generator": 2 * g, "discriminator": 7 * d}
    names = {block.name for block in seen.timeline.blocks if block.part == "parameters"}
    assert names == {"generator.weight", "generator.bias", "discriminator.weight", "discriminator.bias"}


def test_gradient_penalty():
    """WGAN-GP: the gradient of a critic for its input, differentiated again.

    h = x·Aᵀ and o = softplus(h)·Bᵀ forward; B and slope = dh·A for the gradient; then dslope·Aᵀ and the gradients of A
    and B in those two products; then through h to A again and to x. Six products with A, three with B.
    """
    critic = nn.Sequential(nn.Linear(IN, HIDDEN, bias=False), nn.Softplus(), nn.Linear(HIDDEN, 1, bias=False))
    x = torch.randn(ROWS, IN, requires_grad=True)

    def penalty():
        (slope,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
        ((slope.norm(dim=1) - 1) ** 2).mean().backward()

    before = State(critic)
    seen = trace_step(penalty)
    _assert_unchanged(before, State(critic))
    assert x.grad is None
    assert seen.ledger.where(kind="matmul").flops == 6 * 2 * ROWS * IN * HIDDEN + 3 * 2 * ROWS * HIDDEN


def test_hessian_vector_product():
    """y·w forward, yᵀ·u its gradient; y·v for the gradient's gradient, and yᵀ of that: four products."""
    w, v, y = nn.Parameter(torch.randn(IN, HIDDEN)), torch.randn(IN, HIDDEN), torch.randn(ROWS, IN)

    def product():
        (gradient,) = torch.autograd.grad((y @ w).tanh().sum(), w, create_graph=True)
        torch.autograd.grad((gradient * v).sum(), w)

    assert trace_step(product).ledger.where(kind="matmul").flops == 4 * 2 * ROWS * IN * HIDDEN
    assert w.grad is None


def test_newton_schulz_by_hand():
    """Muon on one 64 x 64 weight: 5 iterations of X·Xᵀ, A·A, B·X: 15 products of 2·64³ = 7,864,320 FLOPs."""
    weight = nn.Parameter(torch.randn(64, 64))
    weight.grad = torch.randn(64, 64)

    @torch.no_grad()
    def muon():
        x = weight.grad / (weight.grad.norm() + 1e-7)
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
        weight.sub_(x, alpha=0.02)

    kept = weight.detach().clone()

    def step():
        (weight * 1.0).sum().backward()
        muon()

    products = trace_step(step).ledger.where(kind={"matmul", "linalg"})
    assert products.total.flops_full == 15 * 2 * 64**3 == 7_864_320
    assert torch.equal(weight, kept)


def test_torchs_muon():
    """torch.optim.Muon runs the same products in bf16."""
    model = nn.Linear(64, 64, bias=False)
    optimizer = torch.optim.Muon(model.parameters(), lr=0.02)
    x = torch.randn(ROWS, 64)

    def step():
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    found = trace_step(step).ledger.where(kind="linalg", phase="optimizer")  # the update's own algebra
    assert found.total.flops_full == 7_864_320


def test_moving_average_accumulation_and_clipping():
    """An average of the weights, two micro-batches, one update."""
    model = nn.Linear(IN, OUT)
    average = copy.deepcopy(model).requires_grad_(requires_grad=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    micro = [torch.randn(ROWS, IN) for _ in range(2)]

    @torch.no_grad()
    def update():
        for mean, new in zip(average.parameters(), model.parameters(), strict=True):
            mean.lerp_(new, 0.01)

    def step():
        for x in micro:
            (model(x).square().mean() / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        update()

    before = State(model, average)
    seen = trace_step(step)
    _assert_unchanged(before, State(model, average))
    assert seen.ledger.where(kind="matmul").flops == 2 * 2 * 2 * ROWS * IN * OUT
    assert "lerp" in "".join(line.op for line in seen.ledger.where(phase="optimizer"))


def test_an_optimizer_that_runs_in_the_backward_pass():
    """Hooks on parameters are carried over to the copies: no gradient outlives its update."""
    model = nn.Sequential(nn.Linear(IN, HIDDEN), nn.Linear(HIDDEN, OUT))
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    x = torch.randn(ROWS, IN)
    before = State(model)
    seen = trace_step(lambda: model(x).sum().backward())
    _assert_unchanged(before, State(model))
    assert all(p.grad is None for p in model.parameters())
    held = [b for b in seen.timeline.live_at(seen.timeline.num_events) if b.part == "gradients"]
    assert held == []


def test_tied_weights_parametrizations_and_functional_calls():
    """A tied weight is one; a weight norm is kept; torch.func's gradient is counted."""
    model = nn.Sequential(nn.Linear(IN, IN, bias=False), nn.Linear(IN, IN, bias=False))
    model[1].weight = model[0].weight
    x = torch.randn(ROWS, IN)
    tied = trace_step(lambda: model(x).sum().backward())
    assert tied.num_parameters == IN * IN
    one = 2 * ROWS * IN * IN
    assert (
        tied.ledger.where(kind="matmul").flops == 2 * one + 3 * one
    )  # two forwards, two weight gradients, one input gradient

    normed = parametrizations.weight_norm(nn.Linear(IN, OUT))
    before = State(normed)
    assert trace(normed, x, loss=lambda y, _: y.sum()).ledger.where(kind="matmul").flops == 2 * 2 * ROWS * IN * OUT
    assert trace_step(lambda: normed(x).sum().backward()).ledger.where(kind="matmul").flops == 2 * 2 * ROWS * IN * OUT
    _assert_unchanged(before, State(normed))

    plain = nn.Linear(IN, OUT)
    weights = dict(plain.named_parameters())

    def functional_step():
        def loss(values):
            return torch.func.functional_call(plain, values, (x,)).square().mean()

        torch.func.grad(loss)({name: value.detach() for name, value in weights.items()})

    assert trace_step(functional_step).ledger.where(kind="matmul").flops == 2 * 2 * ROWS * IN * OUT


class Held:
    """A class that holds the model itself."""

    model = nn.Linear(IN, OUT)
    batches = [torch.ones(ROWS, IN)]  # noqa: RUF012  # a user's script does so


def test_what_a_class_holds_is_copied_too():
    before = State(Held.model)
    seen = trace_step(lambda: Held.model(Held.batches[0]).sum().backward())
    assert seen.ledger.where(kind="matmul").flops == 2 * 2 * ROWS * IN * OUT
    _assert_unchanged(before, State(Held.model))
    assert type(Held.batches[0]) is torch.Tensor
