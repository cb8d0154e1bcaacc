"""Layers that predict further tokens: what they read and are told; the loss that is told is the model's own."""

from dataclasses import replace

import torch
from torch.nn import functional

from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec
from torchledger.trainer.init import initialize
from torchledger.trainer.model import build
from torchledger.trainer.prediction import PREDICTION_WEIGHT, ahead

SPEC = ModelSpec("tiny", 50, 16, 2, 16, AttentionSpec(2), MlpSpec(24), num_prediction_layers=2)


def _model(spec=SPEC):
    model = build(spec, attention="fused")
    initialize(model, "fan_in", 0)
    return model


def _batch():
    tokens = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(0))
    return tokens[:, :-1], tokens[:, 1:]


def test_targets_further_ahead_end_with_some_that_do_not_count():
    targets = torch.tensor([[5, 6, 7]])
    assert [ahead(targets, depth).tolist() for depth in (0, 1, 2, 5)] == [
        [[5, 6, 7]],
        [[6, 7, -100]],
        [[7, -100, -100]],
        [[-100, -100, -100]],
    ]


def test_the_loss_that_is_told_is_the_models_own():
    """The same parameters without prediction layers have the same loss to the bit."""
    with_layers, without = _model(), _model(replace(SPEC, num_prediction_layers=0))
    without.load_state_dict({k: v for k, v in with_layers.state_dict().items() if not k.startswith("prediction")})
    assert with_layers(*_batch()).item() == without(*_batch()).item()


def test_the_gradient_is_that_of_both():
    """By hand: 0.3 times the mean of both layers' losses beside the model's own (DeepSeek-V3, equations 21 to 25)."""
    model, (tokens, targets) = _model(), _batch()
    model(tokens, targets).backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    context = model._context(torch.zeros(2, 8, 16), 0, 8, None)
    h = model._embed(tokens)
    for layer in model.layers:
        h = layer(h, context)
    losses = [functional.cross_entropy(model.head(model.final_norm(h)).flatten(0, 1), targets.flatten())]
    for depth, module in enumerate(model.prediction, 1):
        known = torch.zeros_like(targets)
        known[:, : 9 - depth] = targets[:, depth - 1 :]  # token i + depth, as the model knows it at token i
        wanted = torch.full_like(targets, -100)
        wanted[:, : 8 - depth] = targets[:, depth:]
        joined = torch.cat((module.hidden_norm(h), module.embedding_norm(model._embed(known))), dim=-1)
        h = module.layer(module.projection(joined), context)
        logits = model.head(module.final_norm(h))
        losses.append(functional.cross_entropy(logits.flatten(0, 1), wanted.flatten()))
    (losses[0] + PREDICTION_WEIGHT * (losses[1] + losses[2]) / 2).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, msg=name)
