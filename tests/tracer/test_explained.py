"""Steps that cannot be traced: the message names the module, the line and the remedy."""

import time

import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger.tracer import TraceError, trace, trace_step

IN, OUT, ROWS = 8, 4, 16


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


def _batch():
    return torch.randn(ROWS, IN)


def _mean(output, _batch):
    return output.square().mean()


@torch.library.custom_op("torchledger_tests::without_fake", mutates_args=())
def without_fake(x: torch.Tensor) -> torch.Tensor:
    """An operation that tells no shapes."""
    return x.clone()


def _if_tensor(x):
    if x.sum():
        return x
    return -x


@pytest.mark.parametrize(
    ("function", "problem", "remedy"),
    [
        (lambda x: x * x.max().item(), "needs the values of a tensor", "Python number"),
        (_if_tensor, "needs the values of a tensor", "from shapes"),
        (lambda x: torch.tensor(x.tolist()), "needs the values of a tensor", "from shapes"),
        (lambda x: torch.from_numpy(x.detach().numpy()), "needs the values of a tensor", "from shapes"),
        (lambda x: x[: int(x.sum())], "needs the values of a tensor", "from shapes"),
        (lambda x: x[torch.nonzero(x.sum(1))[:, 0]], "needs the values of a tensor", "multiply by the mask"),
        (lambda x: torch.masked_select(x, x > 0), "needs the values of a tensor", "multiply by the mask"),
        (torch.unique, "needs the values of a tensor", "from shapes"),
        (lambda x: (f"{x.mean():.3f}", x)[1], "needs the values of a tensor", "Python number"),
        (
            lambda x: x * torch.ones(IN, device="meta"),
            "tensors of two devices meet",
            "device of the model's parameters",
        ),
        (lambda x: x + torch.ones(IN, device="cuda"), "device that is not there", "target='cuda'"),
        (lambda x: x + torch.ones(IN, device="xpu"), "device that is not there", "where the module's parameters"),
        (without_fake, "tells no shapes without data", "register_fake"),
    ],
    ids=[
        "item",
        "if",
        "tolist",
        "numpy",
        "int",
        "nonzero",
        "masked_select",
        "unique",
        "format",
        "meta",
        "on cuda",
        "on xpu",
        "no fake kernel",
    ],
)
def test_what_needs_data_says_where_and_what_to_do(function, problem, remedy):
    """The message names the operation, the module, this file's line and a remedy."""
    with pytest.raises(TraceError) as caught:
        trace(_nested(function), _batch(), loss=_mean)
    message = str(caught.value)
    assert problem in message
    assert remedy in message
    assert caught.value.module == "1"
    assert "tracer/test_explained.py:" in caught.value.source
    assert caught.value.source in message


@pytest.mark.skipif(torch.cuda.is_available(), reason="a device that is there is no mistake")
@pytest.mark.parametrize("function", [lambda x: x.cuda(), lambda x: x.to("cuda"), lambda x: x.to("cuda:0")])
@pytest.mark.parametrize("after_cuda", [False, True])
def test_a_fixed_device_that_is_not_there(function, after_cuda):
    """A trace for CUDA before lets torch believe that CUDA is up; fake tensors on it would then abort the process."""
    if after_cuda:
        trace(_nested(function), _batch(), loss=_mean, target="cuda")
    with pytest.raises(
        TraceError, match=r"device that is not there .* in module `1` at .*where the module's parameters"
    ):
        trace(_nested(function), _batch(), loss=_mean)


@pytest.mark.parametrize("error", [KeyError, ZeroDivisionError, RuntimeError])
def test_the_users_exception_passes_with_the_module_named(error):
    def forward(_x):
        raise error("mine")

    with pytest.raises(error, match="mine") as caught:
        trace(_nested(forward), _batch(), loss=_mean)
    (note,) = caught.value.__notes__
    assert "in module `1`, at tracer/test_explained.py:" in note


def test_shapes_that_do_not_match_name_the_module(capfd):
    """The message is torch's own, and which layer it was; torch's log of it is not in the way."""
    with pytest.raises(RuntimeError, match="same reduction dim, but got") as caught:
        trace(nn.Sequential(nn.Linear(IN, OUT), nn.Linear(IN, OUT)), _batch(), loss=_mean)
    assert "in module `1`" in caught.value.__notes__[0]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ({"y": torch.zeros(2)}, "unexpected keyword argument 'y'"),
        ((torch.zeros(2), torch.zeros(2)), "takes 2 positional arguments but 3"),
        ((), "missing 1 required positional argument"),
    ],
)
def test_a_batch_of_the_wrong_kind(batch, said):
    with pytest.raises(TraceError, match=r"does not take what it is given .*a mapping by name") as caught:
        trace(_nested(lambda x: x), batch, loss=_mean)
    assert said in str(caught.value)


@pytest.mark.parametrize("batch", ["text", 3, None])
def test_a_batch_that_holds_no_tensor_reaches_the_users_code(batch):
    """Strings and numbers may be what a model takes; torch says what it cannot do with them."""
    with pytest.raises(TypeError) as caught:
        trace(_nested(lambda x: x), batch, loss=_mean)
    assert "in module `0`" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (lambda y, _: y, r"the loss has the shape \(16, 4\), it is no scalar. Reduce it"),
        (lambda *_: None, "the loss is NoneType, not a tensor"),
        (lambda *_: 3.0, "the loss is float, not a tensor"),
        (lambda y, _: y.detach().sum(), "depends on nothing that requires a gradient"),
        (None, r"the model returns a tensor of shape \(16, 4\), which is no loss. Pass loss="),
    ],
)
def test_a_loss_that_is_none(loss, said):
    with pytest.raises(TraceError, match=said):
        trace(nn.Linear(IN, OUT), _batch(), loss=loss)


def test_a_loss_that_is_no_scalar_in_a_users_step():
    """The line is that of the call to backward."""
    model, x = nn.Linear(IN, OUT), _batch()
    with pytest.raises(TraceError, match=r"no scalar at tracer/test_explained.py:\d+. Reduce it first") as caught:
        trace_step(lambda: model(x).backward())
    assert caught.value.module == ""
    with pytest.raises(TraceError, match=r"depends on nothing that requires a gradient at tracer/test_explained"):
        trace_step(lambda: model(x).detach().sum().backward())


def test_a_model_that_returns_nothing():
    with pytest.raises(TraceError, match="the model returns NoneType, which is no loss"):
        trace(_nested(lambda _x: None), _batch())


def test_a_model_without_anything_to_train():
    frozen = nn.Linear(IN, OUT).requires_grad_(requires_grad=False)
    with pytest.raises(TraceError, match=r"nothing that requires a gradient. Give the model a parameter"):
        trace(frozen, _batch(), loss=_mean)


def test_an_optimizer_of_another_model():
    other = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    with pytest.raises(TraceError, match=r"holds none of the model's parameters. Make it on model.parameters\(\)"):
        trace(nn.Linear(IN, OUT), _batch(), loss=_mean, optimizer=other)


def test_a_lazy_module():
    with pytest.raises(TraceError, match=r"lazy parameters.*Run it once on a small real batch"):
        trace(nn.Sequential(nn.LazyLinear(OUT)), _batch(), loss=_mean)


def test_a_scripted_module():
    with pytest.warns(DeprecationWarning, match="jit.script"):
        scripted = torch.jit.script(nn.Linear(IN, OUT))
    for model in (scripted, nn.Sequential(nn.Linear(IN, IN), scripted)):
        with pytest.raises(TraceError, match=r"scripted module \(Linear\) cannot be traced. Take the module"):
            trace(model, _batch(), loss=_mean)
    assert scripted.weight.grad is None


def test_endless_recursion():
    def forward(x):
        return forward(x)

    with pytest.raises(TraceError, match=r"calls itself without end in module `1` at tracer/test_explained"):
        trace(_nested(forward), _batch(), loss=_mean)


def test_a_forward_that_prints_and_looks_at_the_clock(capsys):
    """Neither is in the way, and the tracer prints nothing itself."""

    def forward(x):
        print("shape", tuple(x.shape))  # noqa: T201  # what the test is about
        return x * (1 + time.time() * 0)

    trace(_nested(forward), _batch(), loss=_mean, steps=1)
    captured = capsys.readouterr()
    assert captured.out == "shape (16, 8)\n"
    assert captured.err == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"precision": "fp16"}, "fp16 is no precision to train in on a CPU.*target='cuda'"),
        ({"precision": "fp8"}, "precision is 'fp8'. It is fp32, bf16 or fp16"),
        ({"accumulation_steps": 0}, "0 micro-batches make no step"),
        ({"target": "tpu"}, "target is 'tpu'. It is cpu or cuda"),
        ({"steps": 0}, "nothing to look at in 0 steps"),
    ],
)
def test_impossible_options(options, said):
    with pytest.raises(TraceError, match=said):
        trace(nn.Linear(IN, OUT), _batch(), loss=_mean, **options)


def test_an_interrupt_passes_and_leaves_nothing_on():
    """Ctrl-C in the middle of a forward: no mode, no hook, no stance is left."""

    def forward(_x):
        raise KeyboardInterrupt

    model, batch = _nested(forward), _batch()
    before = torch.get_rng_state()
    with pytest.raises(KeyboardInterrupt):
        trace(model, batch, loss=_mean)
    assert torch.equal(torch.get_rng_state(), before)
    assert type(functional.relu(torch.ones(1))) is torch.Tensor
    assert not nn.modules.module._global_forward_hooks


def test_an_exception_of_the_backward_pass_is_said_to_be_of_it():
    """A hook of a gradient runs in no module."""

    def raises(_gradient):
        raise KeyError("mine")

    model = nn.Linear(IN, OUT)
    model.weight.register_hook(raises)
    with pytest.raises(KeyError, match="mine") as caught:
        trace(model, _batch(), loss=_mean)
    (note,) = caught.value.__notes__
    assert "in the backward pass, at tracer/test_explained.py:" in note


def _packed(x):
    lengths = x.sum((1, 2)).long()
    return nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False).data


def _jagged(x):
    return nn.functional.relu(torch.nested.nested_tensor([x[:3], x[3:]], layout=torch.jagged)).values()


@pytest.mark.filterwarnings("ignore")  # torch's own, of prototypes and of what will go
@pytest.mark.parametrize(
    ("function", "problem", "remedy"),
    [
        (lambda x: _packed(x[None]), "_pack_padded_sequence.default needs the values", "on the padded batch"),
        (_jagged, "jagged nested tensors have sizes that are data", "to_padded_tensor"),
    ],
    ids=["packed sequences", "jagged"],
)
def test_what_no_trace_can_run_says_what_to_trace_instead(function, problem, remedy):
    """Sizes that are data have a remedy each."""
    with pytest.raises(TraceError) as caught:
        trace(_nested(function), _batch(), loss=_mean)
    assert problem in str(caught.value)
    assert remedy in str(caught.value)


@pytest.mark.filterwarnings("ignore")
def test_a_jagged_batch_is_refused_before_anything_runs():
    """It names the padded batch instead."""
    batch = torch.nested.nested_tensor([torch.zeros(3, IN), torch.zeros(5, IN)], layout=torch.jagged)
    with pytest.raises(TraceError, match=r"jagged nested tensors .* Pass the padded batch"):
        trace(nn.Linear(IN, OUT), batch, loss=_mean)


@pytest.mark.filterwarnings("ignore")
def test_a_dynamically_quantized_module_is_refused():
    """Its weights are inside an object of C++; the module that it was made of can be traced."""
    quantized = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(IN, OUT)), {nn.Linear})
    batch = _batch()

    @torch.no_grad()
    def step():
        quantized(batch)

    with pytest.raises(TraceError, match=r"dynamically quantized module .* in module `0` .*that it was made of"):
        trace_step(step)
