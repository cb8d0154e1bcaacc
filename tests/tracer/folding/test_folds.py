"""Tests of `Folds` and `folded`: what runs, what is tried again, what is left as it was."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger.tracer import trace
from torchledger.tracer.folding import Unfoldable, folded
from torchledger.tracer.folding.equal import Plan


def loss(out, _):
    return out.mean()


def test_the_first_four_and_the_last_are_run(monkeypatch):
    calls, linear = [], functional.linear
    monkeypatch.setattr(functional, "linear", lambda *args: calls.append(1) or linear(*args))
    seen = trace(nn.Sequential(nn.Linear(3, 4), *[nn.Linear(4, 4) for _ in range(50)]), torch.zeros(2, 3), loss=loss)
    assert len(calls) == 2 * (1 + 5)
    assert sum(call.signature.op == "aten.addmm.default" for call in seen.calls) == 2 * (1 + 50)


def test_a_step_that_fails_when_folded_is_run_in_full():
    class Fussy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(9))

        def forward(self, x):
            for layer in self.layers:
                before, x = x, layer(x)
                if x is before:
                    raise RuntimeError("a layer that does nothing")
            return x.mean()

    seen = trace(Fussy(), torch.zeros(2, 4))
    assert any("in full" in assumption for assumption in seen.assumptions)
    assert sum(line.times for line in seen.ledger.where(kind="matmul", phase="forward")) == 9


def test_a_models_own_mistake_is_told_as_it_is():
    class Wrong(nn.Sequential):
        def forward(self, _):
            raise KeyError("wrong")

    with pytest.raises(KeyError, match="wrong"):
        trace(Wrong(*[nn.Linear(4, 4) for _ in range(9)]), torch.zeros(2, 4))


def test_another_plan_is_tried_before_all_is_run():
    tried = []

    def run(folds, reasons):
        tried.append((None if folds is None else dict(folds.plans), reasons))
        if folds is None or folds.plans.get("b", 0) is None:
            return "done"
        if "a" in folds.plans:
            raise Unfoldable("b", "no")
        raise Unfoldable("a", "no", Plan(period=2))

    assert folded(run, fold=True) == "done"
    assert tried == [
        ({}, ()),
        ({"a": Plan(period=2)}, ()),
        ({"a": Plan(period=2), "b": None}, ("`b` is traced in full: no",)),
    ]
    assert folded(lambda folds, _: folds, fold=False) is None


def test_classes_and_engine_are_put_back():
    engine = torch.autograd._engine_run_backward
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(9)])
    before = [dict(layer.__dict__) for layer in model]
    trace(model, torch.zeros(2, 4), loss=loss)
    assert torch.autograd._engine_run_backward is engine
    assert all(type(layer) is nn.Linear for layer in model)
    assert [dict(layer.__dict__) for layer in model] == before
