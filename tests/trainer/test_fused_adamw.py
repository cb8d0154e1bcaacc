"""AdamW by the fused kernel alone is torch's own with `fused=True`, bit for bit, whatever happens between steps."""

import copy

import pytest
import torch
from torch import nn

from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, OptimizerSpec
from torchledger.trainer.fused_adamw import FusedAdamW
from torchledger.trainer.model import build
from torchledger.trainer.optimizer import build_optimizer, load_optimizer_state, optimizer_state

SPEC = OptimizerSpec(learning_rate=3e-3, weight_decay=0.1)


def _model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.GELU(), nn.Linear(7, 3))


def _torchs(model):
    decayed = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=3e-3, betas=(SPEC.beta1, SPEC.beta2), eps=SPEC.epsilon, fused=True)


def _pair():
    ours, theirs = _model(), _model()
    return (ours, build_optimizer(ours, SPEC)), (theirs, _torchs(theirs))


def _step(model, optimizer, number, *, without=()):
    """Gradients drawn by the number of the step; those of some parameters there are none."""
    torch.manual_seed(number)
    for index, parameter in enumerate(model.parameters()):
        drawn = torch.randn_like(parameter)
        parameter.grad = None if index in without else drawn
    for group in optimizer.param_groups:
        group["lr"] = 1e-3 * (number + 1)
    optimizer.step()


def _differing(ours, theirs):
    """Names of the parameters and states that are not equal bit for bit, or that one of the two lacks."""
    mine, other = (dict(model.named_parameters()) | optimizer_state(model, made) for model, made in (ours, theirs))
    common = mine.keys() & other.keys()
    return (mine.keys() ^ other.keys()) | {name for name in common if not torch.equal(mine[name], other[name])}


def test_steps_are_those_of_torch():
    """Weights, both averages and the counts of updates, at another learning rate in every step."""
    ours, theirs = _pair()
    assert isinstance(ours[1], FusedAdamW)
    for number in range(5):
        _step(*ours, number)
        _step(*theirs, number)
        assert _differing(ours, theirs) == set()


@pytest.mark.parametrize("without", [(0,), (1, 3), (0, 1, 2, 3)], ids=["one", "a whole group", "all"])
@pytest.mark.parametrize("when", [0, 2])
def test_a_parameter_without_a_gradient_stays_and_its_count_too(without, when):
    """At first, when there is no state yet, and later; the steps after it are torch's again."""
    ours, theirs = _pair()
    for number in range(5):
        _step(*ours, number, without=without if number == when else ())
        _step(*theirs, number, without=without if number == when else ())
        assert _differing(ours, theirs) == set()


def test_state_that_is_put_back_is_used():
    """After a checkpoint is loaded the kernel moves the loaded averages, not those that it moved before."""
    ours, theirs = _pair()
    for pair in (ours, theirs):
        _step(*pair, 0)
        kept = {name: value.clone() for name, value in optimizer_state(*pair).items()}
        _step(*pair, 1)
        load_optimizer_state(*pair, kept)
        _step(*pair, 2)
    assert _differing(ours, theirs) == set()
    assert all(int(value) == 2 for name, value in optimizer_state(*ours).items() if name.endswith("step"))


def test_torchs_own_state_dict_goes_in_and_out():
    """A state of torch's AdamW continues here."""
    ours, theirs = _pair()
    for number in range(2):
        _step(*ours, number)
        _step(*theirs, number)
    ours[1].load_state_dict(copy.deepcopy(theirs[1].state_dict()))
    _step(*ours, 2)
    _step(*theirs, 2)
    assert _differing(ours, theirs) == set()


def test_a_copy_moves_its_own_tensors():
    """A deep copy of model and optimizer steps without touching the original."""
    ours, _ = _pair()
    _step(*ours, 0)
    other = copy.deepcopy(ours)
    before = [p.detach().clone() for p in ours[0].parameters()]
    _step(*other, 1)
    assert all(torch.equal(p, b) for p, b in zip(ours[0].parameters(), before, strict=True))
    _step(*ours, 1)
    assert _differing(ours, other) == set()


@pytest.mark.parametrize("overflows", [False, True])
def test_a_scaler_that_scales_in_the_kernel_is_obeyed(overflows):
    """An overflow that it tells the kernel of moves nothing and does not count; its scale is taken out."""
    ours, theirs = _pair()
    for pair in (ours, theirs):
        _step(*pair, 0)
        pair[1].grad_scale, pair[1].found_inf = torch.tensor(4.0), torch.tensor(float(overflows))
        _step(*pair, 1)
        del pair[1].grad_scale, pair[1].found_inf
        _step(*pair, 2)
    assert _differing(ours, theirs) == set()


def test_parameters_of_two_formats_are_torchs():
    """The kernel takes lists of one format; where there are more, torch's optimizer sorts them."""
    model = build(ModelSpec("small", 11, 4, 1, 8, AttentionSpec(2), MlpSpec(16)), attention="fused")
    assert isinstance(build_optimizer(model, SPEC), FusedAdamW)
    model.head.double()
    assert type(build_optimizer(model, SPEC)) is torch.optim.AdamW
