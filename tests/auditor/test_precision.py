"""Planted faults of number formats, each found and named; and sound models, of which nothing is said."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger.auditor import AuditError, Subject, audit_precision, left_as_it_was

ROWS, WIDTH, CLASSES = 64, 32, 10


class WithLoss(nn.Module):
    """A network whose output is its loss, times a factor."""

    def __init__(self, net, factor=1.0):
        super().__init__()
        self.net, self.factor = net, factor

    def forward(self, x, targets):
        """Mean cross-entropy."""
        return functional.cross_entropy(self.net(x), targets) * self.factor


def layers():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(WIDTH, 64), nn.GELU(), nn.LayerNorm(64), nn.Dropout(0.1), nn.Linear(64, 64), nn.GELU(),
        nn.Linear(64, CLASSES),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread():
    """Networks this small only wait for a second thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def data():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(ROWS, WIDTH, generator=generator), torch.randint(CLASSES, (ROWS,), generator=generator)


def subject(model, *, learning_rate=1e-3, batch=None, optimizer=torch.optim.AdamW, **options):
    made = None if optimizer is None else optimizer(model.parameters(), lr=learning_rate)
    return Subject("toy", model, data() if batch is None else batch, optimizer=made, **options)


def serious(record):
    return [each for each in record.findings if each.severity != "note"]


@pytest.mark.parametrize(("precision", "scale"), [("fp32", 1.0), ("bf16", 1.0), ("fp16", 65536.0)])
def test_nothing_is_said_of_a_sound_model(precision, scale):
    """A small network with norm and dropout raises nothing in any precision, and the advised recipe holds."""
    record = audit_precision(subject(WithLoss(layers()), precision=precision, loss_scale=scale))
    assert record.findings == ()
    checks = {row["which"]: row for row in record.tables["checks"]}
    assert checks["as advised"]["holds"]
    assert checks["as advised"]["gradient_cosine"] > 0.999
    assert ("as configured" in checks) == (precision != "fp32")


def test_every_kind_of_tensor_is_counted():
    """All numbers of weights, outputs, gradients, state and updates are in the table of kinds."""
    model = WithLoss(layers())
    record = audit_precision(subject(model))
    kinds = {row["kind"]: row["elements"] for row in record.tables["kinds"]}
    weights = sum(p.numel() for p in model.parameters())
    outputs = ROWS * (4 * 64 + 2 * 64 + CLASSES)  # two linear layers, two GELUs, norm, dropout: 64 each
    assert kinds == {
        "weight": weights,
        "activation": outputs,
        "activation gradient": outputs,
        "weight gradient": weights,
        "optimizer state": 2 * weights,  # both moments
        "update": weights,
    }
    for row in record.tables["tensors"]:
        numbers = sum(number for _, number in row["exponents"])
        assert numbers + row["zeros"] + row["infinities"] + row["nans"] == row["elements"]


def test_gradients_of_1e_8_are_named_as_0_in_fp16():
    """Gradients of a loss times a millionth are around 1e-8: 0 in FP16 without a loss scale, and none is with one."""
    record = audit_precision(subject(WithLoss(layers(), 1e-6), precision="fp16"))
    found = next(each for each in record.findings if "loss scale" in each.message)
    assert found.severity == "warning"
    assert found.place.startswith("net.")
    assert found.evidence["share"] > 0.9
    assert found.evidence["share_at_best_scale"] < 0.01
    assert record.facts["fp16_gradients_to_zero_share_unscaled"] > 0.9
    assert record.facts["fp16_gradients_to_zero_share_scaled"] < 0.01
    checks = {row["which"]: row for row in record.tables["checks"]}
    assert not checks["as configured"]["holds"]
    assert checks["as advised"]["holds"]


def test_a_loss_scale_that_the_run_has_already_is_no_finding():
    """The same gradients under a loss scale of 2^30 are all in FP16's range."""
    record = audit_precision(subject(WithLoss(layers(), 1e-6), precision="fp16", loss_scale=2.0**30))
    assert serious(record) == []


def test_what_fp16_would_lose_is_only_worth_knowing_where_the_run_is_not_in_it():
    """In FP32 and BF16 those gradients harm nothing: a note."""
    for precision in ("fp32", "bf16"):
        record = audit_precision(subject(WithLoss(layers(), 1e-6), precision=precision))
        assert [each.severity for each in record.findings] == ["note"]
        assert record.is_clean


def test_bf16_weights_that_cannot_move_are_counted_exactly():
    """AdamW moves each weight by its learning rate, 1e-5, less than half a unit of most: as many as do not change."""
    model = WithLoss(layers()).bfloat16()
    batch = (data()[0].bfloat16(), data()[1])
    asked = subject(model, batch=batch, learning_rate=1e-5)
    record = audit_precision(asked)
    with left_as_it_was(asked):
        asked.forward().backward()
        before = [p.detach().clone() for p in model.parameters()]
        asked.optimizer.step()
        frozen = sum(int(p.eq(old).sum()) for p, old in zip(model.parameters(), before, strict=True))
    found = next(each for each in record.findings if "half a unit" in each.message)
    wanted = sum(row["wanted"] for row in record.tables["updates"])
    unmoved = sum(p.numel() for p in model.parameters()) - wanted  # weights that the FP32 step leaves alone too
    assert found.severity == "warning"
    assert found.evidence["frozen"] == frozen - unmoved
    assert found.evidence["share"] > 0.9
    norm = next(row for row in record.tables["updates"] if row["parameter"] == "net.2.weight")
    assert norm["frozen_share"] == 1.0  # 1 ± 1e-5, where BF16's next numbers are 1 + 2^-7 and 1 - 2^-8


def test_the_same_weights_in_fp32_move():
    """Stored in FP32 nothing is lost, and the table says what BF16 would lose."""
    record = audit_precision(subject(WithLoss(layers()), learning_rate=1e-5))
    assert record.findings == ()
    assert record.facts["frozen_share_if_weights_bf16"] > 0.9
    assert all(row["frozen_share"] == 0 for row in record.tables["updates"])


class WithMasters(torch.optim.SGD):
    """Plain descent on FP32 copies of 16-bit weights, which are made at the first step."""

    @torch.no_grad()
    def step(self, closure=None):  # noqa: ARG002  # torch's signature
        """Move the copies and round them."""
        for group in self.param_groups:
            for p in group["params"]:
                copy = self.state[p].setdefault("copy", p.detach().float().clone())
                copy -= group["lr"] * p.grad.float()
                p.copy_(copy)


def test_an_fp32_copy_of_bf16_weights_is_seen():
    """What a step loses of a BF16 weight is not lost where the optimizer keeps an FP32 copy."""
    model = WithLoss(layers()).bfloat16()
    asked = subject(model, batch=(data()[0].bfloat16(), data()[1]), optimizer=WithMasters, learning_rate=1e-5)
    record = audit_precision(asked)
    assert all(row["master"] for row in record.tables["updates"])
    assert not any("half a unit" in each.message for each in record.findings)
    plain = subject(model, batch=asked.batch, optimizer=torch.optim.SGD, learning_rate=1e-5)
    assert any("half a unit" in each.message for each in audit_precision(plain).findings)


def test_adams_epsilon_is_lost_in_fp16():
    """1e-8 is 0 in FP16, so AdamW on FP16 weights divides by 0 where the second moment is 0, and weights are NaN."""
    model = WithLoss(layers()).half()
    record = audit_precision(subject(model, batch=(data()[0].half(), data()[1])))
    found = record.findings[0]
    assert (found.severity, found.evidence["epsilon"]) == ("error", 1e-8)
    assert "epsilon 1e-08 is 0 in FP16" in found.message
    assert found.evidence["unreal_weights"] > 0
    assert all(torch.isfinite(p).all() for p in model.parameters())


class Attention(nn.Module):
    """One layer of attention whose queries and keys are too large by `factor` each."""

    def __init__(self, factor, *, by_hand):
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key, self.head = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, CLASSES)
        self.by_hand = by_hand
        with torch.no_grad():
            self.query.weight *= factor
            self.key.weight *= factor

    def forward(self, x, targets):
        """Mean cross-entropy."""
        q, k, v = (each.view(4, 16, 2, 16).transpose(1, 2) for each in (self.query(x), self.key(x), x))
        v = v.to(q.dtype)
        if self.by_hand:
            attended = (q @ k.transpose(-1, -2) * 16**-0.5).softmax(-1) @ v
        else:
            attended = functional.scaled_dot_product_attention(q, k, v)
        return functional.cross_entropy(self.head(attended.transpose(1, 2).reshape(ROWS, 32)), targets)


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_attention_logits_beyond_fp16_are_found(by_hand, precision):
    """Logits above 65,504 are named with the largest, whether attention is fused or written out."""
    model = Attention(600.0, by_hand=by_hand)
    record = audit_precision(subject(model, precision=precision))
    with torch.no_grad():
        x = data()[0]
        q, k = (f(x).view(4, 16, 2, 16).transpose(1, 2) for f in (model.query, model.key))
        logits = (q @ k.transpose(-1, -2)) / 4
    found = next(each for each in record.findings if each.message.startswith("attention logits"))
    assert found.severity == ("error" if precision == "fp16" else "warning")
    assert found.evidence["largest"] == pytest.approx(logits.abs().max().item(), rel=1e-5)
    assert found.evidence["beyond"] == int((logits.abs() >= 65520).sum())
    if not by_hand:  # fused attention knows its scale
        row = record.tables["logits"][0]
        assert row["before_scaling"] == pytest.approx(4 * logits.abs().max().item(), rel=1e-5)


def test_the_first_operation_that_overflows_is_named():
    """Written out, those logits are infinite in FP16: the matrix product is named, and no later operation."""
    record = audit_precision(subject(Attention(600.0, by_hand=True), precision="fp16"))
    assert record.findings[0].severity == "error"
    assert record.findings[0].evidence == {"operation": "bmm", "format": "float16"}


@pytest.mark.parametrize("by_hand", [False, True])
def test_ordinary_attention_raises_nothing(by_hand):
    """The same layer with weights as they are drawn."""
    for precision, scale in (("fp32", 1.0), ("bf16", 1.0), ("fp16", 65536.0)):
        record = audit_precision(subject(Attention(1.0, by_hand=by_hand), precision=precision, loss_scale=scale))
        assert serious(record) == []


def test_large_numbers_that_vary_little_stay_in_fp32():
    """Outputs of 1,000 ± 1 are multiples of 4 in BF16: the layer is named and the recipe keeps it in FP32."""
    net = layers()
    nn.init.constant_(net[4].bias, 1000.0)
    record = audit_precision(subject(WithLoss(net), precision="bf16"))
    found = next(each for each in record.findings if "adds" in each.message)
    assert (found.severity, found.place) == ("warning", "net.4")
    kept = {row["place"] for row in record.tables.get("kept", ())}
    assert record.facts["advised"] == "FP32 throughout" or "net.4" in kept


def test_numbers_that_are_infinite_in_fp32_are_blamed_on_no_format():
    """A layer with an infinite weight is an error whatever the precision."""
    net = layers()
    with torch.no_grad():
        net[0].weight[3, 4] = math.inf
    record = audit_precision(subject(WithLoss(net)))
    assert record.findings[0].severity == "error"
    assert record.findings[0].place == "net.0.weight"


def test_nothing_is_left_on_the_model():
    """Weights, gradients, state, mode, hooks and random numbers are after an audit what they were before."""
    model = WithLoss(layers()).bfloat16()
    asked = subject(model, batch=(data()[0].bfloat16(), data()[1]), precision="bf16")
    asked.forward().backward()
    asked.optimizer.step()
    state = [
        (
            p,
            p.data_ptr(),
            p.detach().clone(),
            p.grad.clone(),
            {k: v.clone() for k, v in asked.optimizer.state[p].items()},
        )
        for p in model.parameters()
    ]
    stream = torch.get_rng_state()
    audit_precision(asked)
    assert torch.equal(torch.get_rng_state(), stream)
    for p, pointer, value, gradient, moments in state:
        assert p.dtype == torch.bfloat16
        assert (p.data_ptr(), p.grad.dtype) == (pointer, torch.bfloat16)
        assert torch.equal(p, value)
        assert torch.equal(p.grad, gradient)
        for key, moment in moments.items():
            assert asked.optimizer.state[p][key].dtype == moment.dtype
            assert torch.equal(asked.optimizer.state[p][key], moment)
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert "forward" not in vars(module)


def test_without_an_optimizer_updates_are_not_looked_at():
    """Unknown is not zero: there is no row for them, and the record says so."""
    record = audit_precision(subject(WithLoss(layers()), optimizer=None))
    assert {"optimizer state", "update"}.isdisjoint(row["kind"] for row in record.tables["kinds"])
    assert "updates" not in record.tables
    assert record.facts["frozen_share_if_weights_bf16"] is None
    assert any("no optimizer" in each for each in record.assumptions)


def test_a_loss_that_nothing_can_learn_from_is_refused():
    """Where every parameter is frozen there is no gradient to look at."""
    model = WithLoss(layers()).requires_grad_(False)
    with pytest.raises(AuditError, match="no parameter"):
        audit_precision(subject(model, optimizer=None))


def test_steps_are_told():
    """Whoever waits is told how far it is."""
    told = []
    audit_precision(subject(WithLoss(layers())), tell=lambda *each: told.append(each))
    assert [done for done, _, _ in told] == [0, 1, 2, 3, 4]


class OnlyWide(torch.autograd.Function):
    """An operation that has no kernel in 16 bit."""

    @staticmethod
    def forward(ctx, x):  # noqa: ARG004  # torch's signature
        """Hand on what is FP32."""
        if x.dtype != torch.float32:
            raise RuntimeError('"only_wide" not implemented for this format')
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):  # noqa: ARG004  # torch's signature
        """Hand on the gradient."""
        return gradient


class OnlyFp32(nn.Module):
    """A layer of it."""

    def forward(self, x):
        """Hand on what is FP32."""
        return OnlyWide.apply(x)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_format_without_kernels_is_told_and_not_advised(precision):
    """Where a step does not run in a format, the record says so, and the recipe that is advised does run."""
    record = audit_precision(subject(WithLoss(nn.Sequential(layers(), OnlyFp32())), precision=precision))
    assert record.facts["advised"] == "FP32 throughout"
    assert any("does not run on this machine" in each for each in record.assumptions)
    assert [row["which"] for row in record.tables["checks"]] == ["as advised"]


def test_an_optimizer_that_evaluates_the_loss_itself_is_left_out():
    """L-BFGS asks for a closure: its updates are not looked at, and the record says so."""
    record = audit_precision(subject(WithLoss(layers()), optimizer=torch.optim.LBFGS))
    assert "updates" not in record.tables
    assert any("LBFGS evaluates the loss by itself" in each for each in record.assumptions)


@pytest.mark.parametrize(("step", "in_bf16", "in_fp16"), [(0.75 * 2**-9, 1.0, 0.0), (1.5 * 2**-9, 0.0, 0.0)])
def test_what_weights_in_fp32_would_lose_in_16_bit(step, in_bf16, in_fp16):
    """Below 1 numbers in BF16 are 2^-8 apart and in FP16 2^-11: of ones, a step below half of that moves none."""

    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(16))

        def forward(self, x):
            return (self.weight * x).sum()  # a gradient of 1 for each

    model = Weighted()
    subject = Subject("ones", model, torch.ones(16), optimizer=torch.optim.SGD(model.parameters(), lr=step))
    (row,) = audit_precision(subject).tables["updates"]
    assert (row["frozen_share"], row["frozen_share_bf16"], row["frozen_share_fp16"]) == (0.0, in_bf16, in_fp16)
