"""Whatever a step does to a subject, it is afterwards what it was, bit for bit."""

import random
from collections import deque

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.nn.utils import parametrizations

from torchledger.auditor import AuditError, Subject, left_as_it_was


class Counting(nn.Module):
    """Everything that a module can carry besides weights."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.tied = nn.Linear(3, 3)
        self.tied.weight = self.linear.weight
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("mask", torch.ones(1, 3).expand(4, 3))
        self.steps = 0
        self.cache = {"seen": [1, 2], "nested": {"deep": [3]}}
        self.recent = deque([1, 2], maxlen=2)
        self.plain = torch.zeros(2)
        self.generators = (torch.Generator().manual_seed(1), np.random.default_rng(1), random.Random(1))

    def forward(self, x):
        """Leaves something behind in each of them."""
        self.steps += 1
        self.cache["seen"].append(self.steps)
        self.cache["nested"]["deep"].clear()
        self.cache[self.steps] = x
        self.recent.append(self.steps)
        self.plain += 1
        torch.rand(1, generator=self.generators[0])
        self.generators[1].normal()
        self.generators[2].random()
        return self.tied(self.norm(self.linear(x))).square().mean()


@pytest.fixture
def subject():
    torch.manual_seed(0)
    model = Counting()
    made = Subject("s", model, torch.randn(4, 3), optimizer=torch.optim.Adam(model.parameters(), lr=0.1))
    made.forward().backward()
    made.optimizer.step()
    return made


def bits(tensor):
    return tensor.detach().contiguous().view(torch.uint8).tolist() if tensor.dim() else tensor.detach().item()


def photograph(subject):
    """Everything that is looked at, as plain values."""
    model, optimizer = subject.model, subject.optimizer
    return {
        "tensors": {name: bits(t) for name, t in model.state_dict(keep_vars=True).items()},
        "numbers": {name: id(t) for name, t in model.state_dict(keep_vars=True).items()},
        "gradients": {name: (id(p.grad), bits(p.grad)) for name, p in model.named_parameters() if p.grad is not None},
        "wanted": [p.requires_grad for p in model.parameters()],
        "versions": [t._version for t in model.state_dict(keep_vars=True).values()],
        "modes": [m.training for m in model.modules()],
        "classes": [type(m) for m in model.modules()],
        "hooks": [len(getattr(m, n)) for m in model.modules() for n in vars(m) if "hooks" in n],
        "tensor hooks": [len(p._backward_hooks or ()) for p in model.parameters()],
        "own": (model.steps, repr(model.cache), list(model.recent), bits(model.plain)),
        "generators": (
            model.generators[0].get_state().tolist(),
            str(model.generators[1].bit_generator.state),
            model.generators[2].getstate(),
        ),
        "state": [[bits(v) for v in state.values()] for state in optimizer.state.values()],
        "groups": [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups],
        "members": [[id(p) for p in group["params"]] for group in optimizer.param_groups],
        "batch": bits(subject.batch),
        "streams": (torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()),  # noqa: NPY002
    }


def train(subject):
    subject.forward().backward()
    subject.optimizer.step()


def train_and_fail(subject):
    train(subject)
    raise AuditError


def replace_buffers(subject):
    subject.model.norm.running_mean = subject.model.norm.running_mean * 2
    subject.model.register_buffer("extra", torch.ones(1))
    subject.model.mask = torch.zeros(4, 3)


def write_all(subject):
    with torch.no_grad():
        for tensor in subject.model.parameters():
            tensor.fill_(float("nan"))
        subject.model.mask[:, 0:1].as_strided((1, 1), (3, 1)).fill_(7)
        subject.batch.zero_()


def hook_all(subject):
    subject.model.register_forward_hook(lambda *_: None)
    subject.model.linear.register_full_backward_hook(lambda *_: None)
    subject.model.linear.weight.register_hook(lambda g: g)
    subject.model.tied.bias.register_post_accumulate_grad_hook(lambda _: None)
    subject.optimizer.register_step_post_hook(lambda *_: None)
    module_hooks.register_module_forward_hook(lambda *_: None)


CHANGES = {
    "training": lambda s: [train(s) for _ in range(2)],
    "other modes": lambda s: s.model.eval().requires_grad_(requires_grad=False),
    "another format": lambda s: s.model.to(torch.bfloat16),
    "values": write_all,
    "buffers": replace_buffers,
    "hooks": hook_all,
    "gradients gone": lambda s: s.optimizer.zero_grad(set_to_none=True),
    "gradients of zeros": lambda s: s.optimizer.zero_grad(set_to_none=False),
    "optimizer emptied": lambda s: s.optimizer.state.clear(),
    "another rate": lambda s: s.optimizer.param_groups[0].update(lr=9.0, warm=True),
    "another group": lambda s: s.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]}),
    "a state loaded": lambda s: s.optimizer.load_state_dict(s.optimizer.state_dict()),
    "another module": lambda s: setattr(s.model, "norm", nn.Identity()),
    "untied": lambda s: setattr(s.model.tied, "weight", nn.Parameter(torch.zeros(3, 3))),
    "a parametrization": lambda s: parametrizations.weight_norm(s.model.linear),
    "every stream": lambda _: (torch.rand(3), random.random(), np.random.random()),  # noqa: NPY002
}


@pytest.mark.parametrize("change", CHANGES)
def test_everything_is_put_back(subject, change):
    """Values, identity, gradients, hooks, modes, caches, generators and optimizer state are the same after a change."""
    before = photograph(subject)
    with left_as_it_was(subject):
        CHANGES[change](subject)
    assert photograph(subject) == before
    assert module_hooks._global_forward_hooks == {}


def test_it_is_put_back_after_an_error_too(subject):
    """An exception inside changes nothing about that."""
    before = photograph(subject)
    with pytest.raises(AuditError), left_as_it_was(subject):
        train_and_fail(subject)
    assert photograph(subject) == before


def test_a_graph_from_before_can_still_be_run_backward(subject):
    """Values and versions are what autograd saw, so a loss computed before an audit gives its gradients after it."""
    loss = subject.forward()
    expected = torch.autograd.grad(loss, subject.model.linear.weight, retain_graph=True)[0]
    with left_as_it_was(subject):
        train(subject)
    assert torch.equal(torch.autograd.grad(loss, subject.model.linear.weight)[0], expected)


def test_memory_that_nobody_changed_is_not_written():
    """A batch in read-only memory is audited without a write: one would end the process."""
    values = np.frombuffer(np.arange(12, dtype=np.float32).tobytes(), dtype=np.float32)
    with pytest.warns(UserWarning, match="not writable"):
        batch = torch.from_numpy(values).view(4, 3)
    model = nn.Linear(3, 1)
    made = Subject("s", model, batch, loss=lambda out, _: out.mean())
    with left_as_it_was(made):
        made.forward().backward()
    assert model.weight.grad is None


def test_a_loss_module_with_weights_is_put_back_as_well():
    """A loss may be a module; its buffers and parameters are the subject's."""
    loss = nn.BatchNorm1d(1)
    made = Subject("s", nn.Linear(3, 1), torch.randn(4, 3), loss=lambda out, _: loss(out).mean())
    bare = Subject("s", made.model, made.batch, loss=_Loss())
    with left_as_it_was(bare):
        bare.forward()
    assert bare.loss.norm.num_batches_tracked.item() == 0


class _Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(1)

    def forward(self, out, _):
        """The mean of what is normalised."""
        return self.norm(out).mean()


def test_a_lazy_module_is_refused_with_what_to_do():
    """A module whose weights have no size yet cannot be kept."""
    lazy = Subject("s", nn.LazyLinear(3), torch.zeros(2, 2), loss=lambda out, _: out.mean())
    with pytest.raises(AuditError, match="run the model once on a batch"), left_as_it_was(lazy):
        pass
