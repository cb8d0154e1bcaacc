import pytest
import torch


def _stepping(optimizer, sizes=(6, 4), **options):
    parameters = [torch.ones(size, requires_grad=True) for size in sizes]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    stepping = optimizer(parameters, **options)
    stepping.step()
    return stepping


@pytest.mark.parametrize(
    ("optimizer", "options", "flops"),
    [
        (torch.optim.Adam, {}, 10),
        (torch.optim.Adam, {"weight_decay": 0.1}, 12),
        (torch.optim.Adam, {"amsgrad": True}, 11),
        (torch.optim.AdamW, {}, 11),
        (torch.optim.SGD, {"lr": 0.1}, 2),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}, 6),
        (torch.optim.Adagrad, {}, 5),
        (torch.optim.Adagrad, {"weight_decay": 0.1}, 7),
    ],
)
def test_a_fused_step_costs_its_formula_an_element(lines, optimizer, options, flops):
    """Ten elements in two tensors, one kernel."""
    stepping = _stepping(optimizer, fused=True, **options)
    found = [line for line in lines(stepping.step) if dict(line.shape).get("elements") == 10]
    assert [line.work.flops_full for line in found] == [flops * 10]
    assert found[0].kind == "optimizer"


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam_is_the_same_arithmetic_however_it_runs(lines, decay):
    """Fused against a loop of operations: 10 an element, and decay g + wd·p 2 more."""
    counts = []
    for options in ({"fused": True}, {"foreach": False}):
        stepping = _stepping(torch.optim.Adam, sizes=(10,), weight_decay=decay, **options)
        found = [line for line in lines(stepping.step) if dict(line.shape).get("elements") == 10]
        counts.append(sum(line.total.flops_full for line in found))
    assert counts[0] == counts[1] == (12 if decay else 10) * 10


def test_a_gradient_scaler_looks_at_each_gradient_once(only):
    """A compare and a product an element; the scale is one number."""
    gradients, found, inverse = [torch.ones(6), torch.ones(4)], torch.zeros(1), torch.ones(1)
    line = only(lambda: torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse))
    assert (line.work.flops_full, line.kind) == (2 * 10, "optimizer")
    scale, steps = torch.ones(1), torch.zeros(1, dtype=torch.int32)
    assert only(lambda: torch._amp_update_scale_(scale, steps, found, 2.0, 0.5, 100)).work.flops_full == 4
