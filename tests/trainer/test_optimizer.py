from dataclasses import replace

import pytest
import torch

from torchledger.spec import OptimizerSpec, PositionSpec
from torchledger.trainer.init import initialize
from torchledger.trainer.model import build
from torchledger.trainer.optimizer import build_optimizer, is_decayed, load_optimizer_state, optimizer_state


@pytest.fixture
def model(tiny):
    model = build(replace(tiny, position=PositionSpec("learned")), attention="math")
    initialize(model, "fan_in", 0)
    return model


def with_gradients(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.grad = torch.randn(p.shape, generator=generator)


def test_matrices_decay_and_vectors_do_not(model):
    """Weight decay acts on matrices, not on norms, biases or embeddings of positions."""
    decayed = {name for name, p in model.named_parameters() if is_decayed(name, p)}
    assert {"embedding.weight", "head.weight", "layers.0.mlp.up.weight"} <= decayed
    assert not decayed & {"position_embedding.weight", "final_norm.weight", "layers.0.attention_norm.weight"}
    groups = build_optimizer(model, OptimizerSpec(weight_decay=0.3)).param_groups
    assert [(group["weight_decay"], len(group["params"])) for group in groups] == [
        (0.3, len(decayed)),
        (0.0, len(list(model.parameters())) - len(decayed)),
    ]


def test_adamw_is_its_papers_first_update(model):
    """At the first update AdamW moves by lr·(sign of the gradient, but for epsilon) + lr·decay·weight."""
    weight = model.head.weight.detach().clone()
    with_gradients(model, 0)
    gradient = model.head.weight.grad.clone()
    build_optimizer(model, OptimizerSpec(learning_rate=0.01, weight_decay=0.1)).step()
    expected = weight * (1 - 0.01 * 0.1) - 0.01 * gradient / (gradient.abs() + 1e-8)
    torch.testing.assert_close(model.head.weight.detach(), expected)


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_implementations_agree(tiny, kind):
    """Fused, foreach and loop give the same weights up to rounding."""
    results = []
    for implementation in ("fused", "foreach", "loop"):
        model = build(tiny, attention="math")
        initialize(model, "fan_in", 0)
        optimizer = build_optimizer(model, OptimizerSpec(kind, implementation, momentum=0.9, learning_rate=0.01))
        for step in range(3):
            with_gradients(model, step)
            optimizer.step()
        results.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(results[0], results[1])
    torch.testing.assert_close(results[0], results[2])


KINDS = ("adamw", "sgd", "lion", "muon", "adafactor", "adamw-8bit")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_goes_out_and_in_without_losing_a_bit(tiny, kind):
    """An optimizer given another's state makes the same next updates, bit for bit, whatever its kind."""
    spec = OptimizerSpec(kind, momentum=0.9, learning_rate=0.01)
    models = [build(replace(tiny, hidden_size=64, vocab_size=600), attention="math") for _ in range(2)]
    initialize(models[0], "fan_in", 0)
    optimizers = [build_optimizer(model, spec) for model in models]
    with_gradients(models[0], 0)
    optimizers[0].step()
    models[1].load_state_dict(models[0].state_dict())
    state = {name: t.clone() for name, t in optimizer_state(models[0], optimizers[0]).items()}
    load_optimizer_state(models[1], optimizers[1], state)
    for step in (1, 2):
        for model, optimizer in zip(models, optimizers, strict=True):
            with_gradients(model, step)
            optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True))
    after = [optimizer_state(model, each) for model, each in zip(models, optimizers, strict=True)]
    assert after[0].keys() == after[1].keys()
    assert all(torch.equal(after[0][name], after[1][name]) for name in after[0])


def test_muon_moves_matrices_of_layers_and_adamw_the_rest(model):
    """Tables, head and vectors have AdamW's two averages, matrices of layers one."""
    optimizer = build_optimizer(model, OptimizerSpec("muon"))
    with_gradients(model, 0)
    optimizer.step()
    state = optimizer_state(model, optimizer)
    assert "layers.0.mlp.up.weight.momentum_buffer" in state
    assert {"embedding.weight.exp_avg", "head.weight.exp_avg_sq", "layers.0.mlp_norm.weight.exp_avg"} <= set(state)
    assert "layers.0.mlp.up.weight.exp_avg" not in state


def test_parameters_of_another_scale_have_a_group_of_their_own(model):
    """A factor of the learning rate by name (muP) makes a group; all others have 1."""
    groups = build_optimizer(model, OptimizerSpec(), scales={"head.weight": 0.25}).param_groups
    assert [(group["scale"], len(group["params"])) for group in groups if group["scale"] != 1] == [(0.25, 1)]


@pytest.mark.parametrize("implementation", ["fused", "foreach", "loop"])
def test_state_goes_out_and_in_without_losing_a_bit(tiny, implementation):
    """An optimizer given another's state makes the same next updates, bit for bit."""
    spec = OptimizerSpec(implementation=implementation)
    first, second = build(tiny, attention="math"), build(tiny, attention="math")
    initialize(first, "fan_in", 0)
    optimizer = build_optimizer(first, spec)
    with_gradients(first, 0)
    optimizer.step()
    second.load_state_dict(first.state_dict())
    other = build_optimizer(second, spec)
    load_optimizer_state(second, other, {name: t.clone() for name, t in optimizer_state(first, optimizer).items()})
    for step in (1, 2):
        for model, each in ((first, optimizer), (second, other)):
            with_gradients(model, step)
            each.step()
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_state_is_named_by_parameter(model):
    """State names are the parameter's and the state's."""
    optimizer = build_optimizer(model, OptimizerSpec())
    with_gradients(model, 0)
    optimizer.step()
    state = optimizer_state(model, optimizer)
    assert {"head.weight.exp_avg", "head.weight.exp_avg_sq", "head.weight.step"} <= set(state)
    assert len(state) == 3 * len(list(model.parameters()))


def test_fused_sgd_moves_16_bit_parameters_as_a_loop_does():
    """Whatever implementation is asked for, every number of a BF16 matrix has moved by -lr·b, b ← 0.9·b + g, g = 1.

    The first step moves by lr, the second by 1.9·lr: from 0 to -0.29 with lr = 0.1, within BF16's 2⁻⁸.
    """
    for implementation in ("fused", "foreach", "loop"):
        spec = OptimizerSpec("sgd", learning_rate=0.1, momentum=0.9, weight_decay=0.0, implementation=implementation)
        model = torch.nn.Linear(64, 64, bias=False, dtype=torch.bfloat16)
        torch.nn.init.zeros_(model.weight)
        optimizer = build_optimizer(model, spec, "bf16-pure")
        for _ in range(2):
            model.weight.grad = torch.ones_like(model.weight)
            optimizer.step()
        assert torch.allclose(model.weight.float(), torch.tensor(-0.29), rtol=2**-7), implementation
        assert torch.allclose(optimizer.state[model.weight]["momentum_buffer"].float(), torch.tensor(1.9), rtol=2**-7)
