import pytest
import torch
from torch import nn

from torchledger.auditor import Subject
from torchledger.auditor.precision_step import in_fp32, master_of, stepped, widened


def subject(dtype=torch.float32, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 1)).to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x = torch.randn(32, 8).to(dtype)
    return Subject("toy", model, (x,), loss=lambda y, _: y.float().square().mean(), optimizer=optimizer, **options)


def test_a_step_is_the_step_that_training_would_do_and_leaves_nothing():
    """Loss, gradients and updates are those of a loop by hand; weights and running averages are put back after it."""
    asked = subject(gradient_clip=0.1)
    before = {name: tensor.clone() for name, tensor in asked.model.state_dict().items()}
    stream = torch.get_rng_state()
    step = stepped(asked, "fp32")
    assert all(torch.equal(tensor, before[name]) for name, tensor in asked.model.state_dict().items())
    torch.set_rng_state(stream)
    loss = asked.forward()
    loss.backward()
    assert step.loss == loss.item()
    assert all(torch.equal(step.gradients[name], p.grad) for name, p in asked.model.named_parameters())
    nn.utils.clip_grad_norm_(asked.model.parameters(), 0.1)
    asked.optimizer.step()
    moved = {name: p.detach() - before[name] for name, p in asked.model.named_parameters()}
    assert all(torch.equal(step.updates[name], update) for name, update in moved.items())


def test_a_loss_scale_that_is_a_power_of_two_changes_no_gradient():
    """It is multiplied in and divided out again, and in FP32 neither rounds."""
    asked = subject()
    plain, scaled = stepped(asked, "fp32"), stepped(asked, "fp32", loss_scale=2.0**12)
    assert all(torch.equal(plain.gradients[name], scaled.gradients[name]) for name in plain.gradients)


def test_a_widened_subject_is_in_fp32_until_the_end():
    """Parameters, buffers, batch and state are FP32 inside, and the very BF16 tensors that they were outside."""
    asked = subject(torch.bfloat16)
    asked.forward().backward()
    asked.optimizer.step()
    pointers = [(p, p.data_ptr()) for p in asked.model.parameters()]
    with widened(asked) as wide:
        assert {t.dtype for t in wide.model.state_dict().values() if t.is_floating_point()} == {torch.float32}
        assert wide.batch[0].dtype == torch.float32
        assert {state["exp_avg"].dtype for state in asked.optimizer.state.values()} == {torch.float32}
        assert stepped(wide, "fp32").is_finite
    assert [(p, p.data_ptr()) for p in asked.model.parameters()] == pointers
    assert (
        {p.dtype for p in asked.model.parameters()}
        == {p.grad.dtype for p in asked.model.parameters()}
        == {torch.bfloat16}
    )
    assert {state["exp_avg"].dtype for state in asked.optimizer.state.values()} == {torch.bfloat16}


def test_the_fp32_copy_of_a_weight_is_what_rounds_to_it():
    """1.001 is 1 in BF16, so it is the copy; a moment that is not the weight is none, and FP32 weights need none."""
    weight = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    optimizer = torch.optim.SGD([weight])
    optimizer.state[weight]["momentum"] = torch.full((2,), 0.5)
    assert master_of(optimizer, weight) is None
    optimizer.state[weight]["master"] = torch.full((2,), 1.001)
    assert master_of(optimizer, weight) is optimizer.state[weight]["master"]
    assert master_of(optimizer, nn.Parameter(torch.ones(2))) is None


def test_widened_weights_have_the_digits_of_their_fp32_copy():
    """What an optimizer goes on from is the copy, so the FP32 step does too."""
    weight = nn.Linear(2, 1, bias=False).to(torch.bfloat16)
    nn.init.ones_(weight.weight)
    optimizer = torch.optim.SGD(weight.parameters())
    optimizer.state[weight.weight]["master"] = torch.full((1, 2), 1.001)
    with widened(Subject("toy", weight, (torch.ones(1, 2),), optimizer=optimizer)):
        assert torch.equal(weight.weight.detach(), torch.full((1, 2), 1.001))
    assert torch.equal(weight.weight.detach(), torch.ones(1, 2, dtype=torch.bfloat16))


def test_a_module_in_fp32_runs_outside_of_autocast_on_wide_inputs():
    """Its output is FP32's and no method is left on it, also when it raises."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    x = torch.randn(2, 4)
    with in_fp32(model, ["1"]), torch.autocast("cpu", torch.bfloat16):
        made = model(x)
    assert made.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        low = model[0](x)
    assert torch.equal(made, model[1](low.float()))
    with pytest.raises(RuntimeError), in_fp32(model, ["1"]):
        model(torch.randn(2, 5))
    assert "forward" not in vars(model[1])
