"""A subject is audited alike wherever the caller stands."""

from unittest.mock import Mock

import pytest
import torch
from torch import nn

from torchledger.auditor import AuditError, Subject, audit_determinism, audit_init, audit_precision


@pytest.fixture
def subject():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    return Subject("three layers", model, torch.randn(5, 8), loss=lambda output, _: output.square().mean())


@pytest.mark.parametrize("audit", [audit_precision, audit_init, audit_determinism])
@pytest.mark.parametrize("without_gradients", [torch.no_grad, torch.inference_mode])
def test_a_caller_who_switched_gradients_off_gets_the_same_answer(subject, audit, without_gradients):
    """Under no_grad and inference_mode an audit tells the facts that it tells outside, and both stay on."""
    outside = audit(subject)
    with without_gradients():
        inside = audit(subject)
        assert not torch.is_grad_enabled()
        assert torch.is_inference_mode_enabled() == (without_gradients is torch.inference_mode)
    assert inside.facts == outside.facts
    assert inside.findings == outside.findings


@pytest.mark.parametrize("audit", [audit_precision, audit_init, audit_determinism])
def test_nothing_is_compiled_for_an_audit(subject, audit):
    """The compiler of a compiled model is never called: what is audited are the operations that were written."""
    compiler = Mock(side_effect=AssertionError("compiled"))
    subject.model.compile(backend=compiler)
    audit(subject)
    compiler.assert_not_called()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"precision": "fp99"}, "precision is 'fp99'; take fp32, bf16, fp16"),
        ({"loss": "mse"}, "the loss is 'mse', no function"),
        ({"optimizer": 7}, "the optimizer is 7"),
    ],
)
def test_what_no_step_can_be_made_of_is_refused_at_once(given, said):
    """An unknown precision is not FP32 without a word, and a loss or an optimizer that is none is told by its name."""
    with pytest.raises(AuditError, match=said):
        Subject("refused", nn.Linear(2, 2), torch.randn(1, 2), **given)
