import pytest
import torch
from torch import nn

import torchledger
from torchledger.auditor import AuditError, audit


def _loss(output, _batch):
    return output.square().mean()


def test_a_module_and_a_batch_are_enough():
    """Every audit runs on a plain module, in the order asked for, and its record prints as a screen."""
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    found = torchledger.audit(net, torch.randn(32, 8), loss=_loss)
    assert list(found) == ["precision", "init", "copies", "determinism"]
    assert all(record.subject == "Sequential" and record.audit == kind for kind, record in found.items())
    assert str(found["init"]).startswith("init of Sequential: ")
    assert "<table" in found["init"]._repr_html_()


def test_one_audit_may_be_asked_for_by_its_name():
    """A single kind need be no list."""
    net = nn.Linear(4, 2)
    assert list(torchledger.audit(net, torch.randn(3, 4), loss=_loss, kinds="copies")) == ["copies"]


def test_what_cannot_be_audited_is_told():
    """No batch, and an audit that there is not, are told with what to do."""
    with pytest.raises(AuditError, match=r"Linear needs a batch to run on: audit\(model, batch, loss=...\)"):
        audit(nn.Linear(2, 2))
    with pytest.raises(AuditError, match="no audit is called 'inits'; there are precision, init"):
        audit(nn.Linear(2, 2), torch.zeros(1, 2), kinds=["inits"])
