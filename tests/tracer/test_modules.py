import pytest
import torch
from torch import nn

from torchledger.tracer.modules import ModuleStack, parameters_of


class Spy(nn.Module):
    """Writes down where it runs."""

    def __init__(self, stack):
        super().__init__()
        self.stack, self.seen = stack, []

    def forward(self, x):
        """Its input."""
        self.seen.append((self.stack.path, self.stack.kind))
        return x


@pytest.fixture
def stack():
    stack = ModuleStack(lambda *_: None)
    stack.watch()
    yield stack
    stack.unwatch()


def test_paths_are_those_of_the_root(stack):
    spy = Spy(stack)
    net = nn.ModuleDict({"layers": nn.ModuleList([nn.Sequential(spy), nn.Identity()])})
    stack.register(net)
    net["layers"][0](torch.zeros(1))
    assert spy.seen == [("layers.0.0", "")]
    assert (stack.path, stack.depth) == ("", 0)


def test_what_the_compiler_puts_between_is_left_out(stack):
    """A compiled module's own name, `_orig_mod`, is in no path."""
    spy = Spy(stack)
    net = nn.Sequential(nn.ModuleDict({"_orig_mod": spy}))
    stack.register(net)
    spy(torch.zeros(1))
    assert spy.seen == [("0", "")]
    assert set(parameters_of(nn.ModuleDict({"_orig_mod": nn.Linear(1, 1)}))) == {"weight", "bias"}


def test_the_kind_of_a_module_holds_for_those_inside(stack):
    spy = Spy(stack)
    core = nn.Sequential(spy)
    core.ledger_kind = "attention"
    nn.Sequential(core)(torch.zeros(1))
    assert spy.seen == [("0.0", "attention")]
    assert stack.kind == ""


def test_a_module_that_raises_is_named_and_the_stack_is_empty_again(stack):
    class Raises(nn.Module):
        def forward(self, _x):
            raise ValueError

    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the type is all there is
        nn.Sequential(nn.Identity(), Raises())(torch.zeros(1))
    assert stack.failed_in(caught.value) == "1"
    assert stack.failed_in(ValueError()) == ""
    assert stack.depth == 0


def test_a_model_the_user_lets_go_of_is_not_held():
    """Names are kept by weak reference."""
    import gc
    import weakref

    stack = ModuleStack(lambda *_: None)
    model = nn.Linear(1, 1)
    stack.register(model)
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None
