import random
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger.tracer import TraceError, trace, trace_step

IN, OUT, ROWS = 8, 4, 16


class Net(nn.Module):
    """A module with everything that a step could disturb: batch statistics, dropout, a counter, a hook."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(IN, IN), nn.BatchNorm1d(IN)
        self.dropout, self.last = nn.Dropout(0.5), nn.Linear(IN, OUT)
        self.num_calls = 0

    def forward(self, x):
        """Logits."""
        self.num_calls += 1
        return self.last(self.dropout(self.norm(self.first(x))))


def _mean(output, _batch):
    return output.square().mean()


def _batch():
    return torch.randn(ROWS, IN)


@pytest.mark.parametrize("training", [True, False])
def test_the_users_model_is_left_as_it_was(training):
    """Weights, buffers, gradients, mode, hooks and attributes."""
    model = Net().train(training)
    hook_calls = []
    model.first.register_forward_hook(lambda *_: hook_calls.append(1))
    model.last.weight.grad = torch.ones(OUT, IN)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    objects = {name: id(value) for name, value in [*model.named_parameters(), *model.named_buffers()]}
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]
    trace(model, _batch(), loss=_mean, optimizer=torch.optim.AdamW, gradient_clip=1.0, precision="bf16")
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert {name: id(value) for name, value in [*model.named_parameters(), *model.named_buffers()]} == objects
    assert [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()] == hooks
    assert [module.training for module in model.modules()] == [training] * len(list(model.modules()))
    assert model.num_calls == 0
    assert torch.equal(model.last.weight.grad, torch.ones(OUT, IN))
    assert model.first.weight.grad is None


def test_the_users_optimizer_is_left_as_it_was_and_its_class_is_honoured():
    """SGD with momentum has one buffer a parameter, and the real optimizer none after the trace."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    seen = trace(model, _batch(), loss=_mean, optimizer=optimizer)
    assert not optimizer.state
    assert optimizer.param_groups[0]["params"][0] is model.first.weight
    state = [block for block in seen.timeline.blocks if block.part == "optimizer state"]
    assert len(state) == len(list(model.parameters()))
    assert sum(block.num_bytes for block in state) == 4 * seen.num_parameters


def test_every_random_stream_is_left_as_it_was():
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002  # the global stream is what a user's forward may draw from

    class Random(nn.Module):
        def forward(self, x):
            return functional.dropout(x, 0.5) * random.random() * np.random.rand()  # noqa: NPY002  # as above

    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    trace(Random(), torch.zeros(4, requires_grad=True), loss=_mean)
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_a_model_without_memory_gives_the_same_answer():
    """The same net on meta: the same lines, the same timeline."""
    with torch.device("meta"):
        nowhere = nn.Sequential(nn.Linear(IN, OUT), nn.Tanh())
    here = nn.Sequential(nn.Linear(IN, OUT), nn.Tanh())
    batch = _batch()
    one, two = (trace(m, batch, loss=_mean, optimizer=torch.optim.AdamW) for m in (here, nowhere))
    assert one.ledger == two.ledger
    assert one.timeline == two.timeline


def test_the_ledger_is_of_the_last_step_and_the_timeline_of_all():
    """A second step with AdamW's state present, from the model's parameters on."""
    seen = trace(nn.Linear(IN, OUT), _batch(), loss=_mean, optimizer=torch.optim.AdamW)
    assert sum(line.times for line in seen.ledger.where(phase="forward", kind="matmul")) == 1
    first = seen.timeline.marks["step 2"]
    live = {block.part for block in seen.timeline.live_at(first)}
    assert live == {"parameters", "optimizer state", "inputs"}
    assert seen.timeline.blocks[0].part == "parameters"
    assert seen.step_events == first


def test_two_traces_of_one_step_are_the_same():
    model, batch = Net(), _batch()
    one, two = (trace(model, batch, loss=_mean, optimizer=torch.optim.AdamW) for _ in range(2))
    assert one == two


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (x,), lambda x: {"x": x}], ids=["tensor", "tuple", "mapping"])
def test_batches_of_every_kind(wrap):
    seen = trace(Net(), wrap(_batch()), loss=_mean)
    assert [block.num_bytes for block in seen.timeline.blocks if block.part == "inputs"] == [ROWS * IN * 4]


def test_a_model_that_returns_its_own_loss():
    """A scalar, an attribute `loss` or a key `loss` needs no loss function."""

    class Own(nn.Module):
        def __init__(self, kind):
            super().__init__()
            self.layer, self.kind = nn.Linear(IN, OUT), kind

        def forward(self, x):
            loss = self.layer(x).mean()
            return {"scalar": loss, "key": {"loss": loss}}[self.kind]

    flops = {kind: trace(Own(kind), _batch()).ledger.flops for kind in ("scalar", "key")}
    assert set(flops.values()) == {2 * 2 * ROWS * IN * OUT}  # forward and weight gradient


def test_trace_step_builds_the_users_own_step():
    """Model, optimizer and data made inside are fake; what is left of building is parameters and data."""

    def build():
        model = nn.Linear(IN, OUT)
        nn.init.trunc_normal_(model.weight, std=0.02)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        x, y = torch.randn(ROWS, IN), torch.randint(OUT, (ROWS,))

        def step():
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    seen = trace_step(build)
    assert seen.num_parameters == IN * OUT + OUT
    live = {(b.part, b.num_bytes) for b in seen.timeline.live_at(seen.timeline.marks["step 1"])}
    assert live == {
        ("parameters", IN * OUT * 4),
        ("parameters", OUT * 4),
        ("inputs", ROWS * IN * 4),
        ("inputs", ROWS * 8),
    }
    assert seen.ledger.where(kind="matmul").flops == 2 * 2 * ROWS * IN * OUT
    assert seen.ledger.where(kind="optimizer").by("op").keys() == {"adamw", "add"}, "the kernel, and the step count"


class Inner(nn.Module):
    """Runs a given function as its forward."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        """What the function says."""
        return self.function(x)


def _nested(function):
    return nn.Sequential(nn.Linear(IN, IN), nn.ModuleDict({"inner": Inner(function)})["inner"])


@pytest.mark.parametrize(
    ("function", "problem", "remedy"),
    [
        (lambda x: x if x.sum() > 0 else -x, "_local_scalar_dense.default needs the values", "from shapes"),
        (lambda x: x * x.max().item(), "needs the values of a tensor", "Python number"),
        (lambda x: x[x > 0], "aten.nonzero.default needs the values", "multiply by the mask"),
        (lambda x: torch.from_numpy(x.detach().numpy()), "needs the values of a tensor", "from shapes"),
        (lambda x: x.to("cuda"), "a device that is not there", "where the module's parameters are"),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="a device that is there is no mistake")
def test_what_needs_data_says_where_and_what_to_do(function, problem, remedy):
    """The message names the operation, the module, this file's line and a remedy."""
    with pytest.raises(TraceError) as caught:
        trace(_nested(function), _batch(), loss=_mean)
    message = str(caught.value)
    assert problem in message
    assert remedy in message
    assert caught.value.module == "1"
    assert "tracer/test_step.py:" in caught.value.source
    assert caught.value.source in message


def test_the_users_exception_passes_with_the_module_named():
    def forward(_x):
        raise KeyError("weights")

    with pytest.raises(KeyError, match="weights") as caught:
        trace(_nested(forward), _batch(), loss=_mean)
    (note,) = caught.value.__notes__
    assert "in module `1`, at tracer/test_step.py:" in note


def test_a_step_without_a_loss_says_so():
    with pytest.raises(TraceError, match=r"is no loss.*Pass loss="):
        trace(nn.Linear(IN, OUT), _batch())


def test_a_model_that_cannot_be_copied_says_so():
    class Locked(nn.Linear):
        def __deepcopy__(self, memo):
            raise TypeError("cannot pickle a lock")

    with pytest.raises(TraceError, match=r"cannot be copied: cannot pickle a lock.*trace_step"):
        trace(Locked(IN, OUT), _batch(), loss=_mean)


def test_a_real_tensor_that_the_forward_reaches_for_is_not_touched():
    """A global table and a running count, read and written by the forward."""
    table, count = torch.ones(IN), torch.zeros(1)

    class Reaches(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(IN, OUT)

        def forward(self, x):
            count.add_(1)
            return self.layer(x * table) + count

    seen = trace(Reaches(), _batch(), loss=_mean)
    assert torch.equal(count, torch.zeros(1))
    assert torch.equal(table, torch.ones(IN))
    assert seen.ledger.where(kind="matmul").flops == 2 * 2 * ROWS * IN * OUT


def test_no_steps_are_refused():
    with pytest.raises(TraceError, match="nothing to look at in 0 steps"):
        trace(nn.Linear(IN, OUT), _batch(), loss=_mean, steps=0)


def test_a_model_on_another_device_than_the_cpu_is_traced_as_on_it():
    """Meta parameters, a real batch: every block is there, none of it allocated."""
    with torch.device("meta"):
        model = nn.Linear(1_000_000, 1_000, bias=False)
    seen = trace(model, torch.zeros(1, 1_000_000), loss=_mean)
    assert seen.num_parameters == 10**9
    assert seen.peak().by_part()["parameters"] == 4 * 10**9


class _Nested(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.next = _Nested(depth - 1) if depth else nn.Identity()

    def forward(self, x):
        return self.next(self.linear(x))


def test_the_deepest_model_that_runs_can_be_traced():
    """Two hundred modules within modules: to copy one takes more calls than to run it does. The limit is put back."""
    model, batch = _Nested(200), torch.randn(1, 2)
    _mean(model(batch), batch).backward()
    limit = sys.getrecursionlimit()
    seen = trace(model, batch, loss=_mean)
    assert seen.num_parameters == 201 * (2 * 2 + 2)
    assert sys.getrecursionlimit() == limit


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear, r"Linear is the class of a model. Make one: Linear\(...\)"),
        (_mean, "_mean is no torch.nn.Module. Pass the model, or trace_step a function"),
        (None, "NoneType is no torch.nn.Module"),
    ],
)
def test_what_is_no_model(model, message):
    with pytest.raises(TraceError, match=message):
        trace(model, torch.randn(ROWS, IN), loss=_mean)


@pytest.mark.parametrize(
    "around",
    [
        torch.inference_mode,
        lambda: torch.autograd.set_detect_anomaly(True),
        lambda: torch.device("meta"),
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    ],
    ids=["inference_mode", "detect_anomaly", "device", "autocast"],
)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_is_on_around_a_trace_changes_nothing(around, precision):
    """A default device, a search for NaN, autocast: the trace is of the step alone; they are on again afterwards."""
    model, batch = nn.Linear(IN, OUT), torch.randn(ROWS, IN)
    alone = trace(model, batch, loss=_mean, optimizer=torch.optim.AdamW, precision=precision)
    with around():
        before = (torch.is_inference_mode_enabled(), torch.is_anomaly_enabled(), torch.get_default_device())
        seen = trace(model, batch, loss=_mean, optimizer=torch.optim.AdamW, precision=precision)
        assert before == (torch.is_inference_mode_enabled(), torch.is_anomaly_enabled(), torch.get_default_device())
    assert seen.ledger == alone.ledger
    assert seen.peak().peak_bytes == alone.peak().peak_bytes


async def _coroutine():
    pass


def _generator():
    yield


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (3, "int is no function. Pass a function that runs the step"),
        (nn.Linear(IN, OUT), r"a model is no step. Use trace\(model, batch\)"),
        (lambda batch: batch, r"called with nothing, and this one has a missing a required argument: 'batch'"),
        (_coroutine, "_coroutine is a generator or coroutine: to call it runs nothing. Pass a plain function"),
        (_generator, "_generator is a generator or coroutine"),
    ],
    ids=["number", "model", "argument", "coroutine", "generator"],
)
def test_what_is_no_step(step, message):
    with pytest.raises(TraceError, match=message):
        trace_step(step)
