"""`explain` against torch itself: geometry, who shares a storage, and whether a view works."""

import pytest
import torch
from torch import nn

from torchledger.auditor import AuditError, explain
from torchledger.formats.strides import StrideError


def test_geometry_is_the_tensors():
    """Shape, stride, offset and storage are what torch says; the arithmetic finds the element that torch finds."""
    whole = torch.arange(24).view(4, 6)
    found = explain(whole[1:, 2:].t())
    assert (found.shape, found.stride, found.offset) == ((4, 3), (1, 6), 1 * 6 + 2)
    assert found.storage_bytes == 24 * 8
    assert found.arithmetic == "storage[8 + i + 6·j]"
    assert found.reach == (8, 8 + 3 * 1 + 2 * 6 + 1)
    assert not found.is_contiguous
    assert not found.overlaps
    assert found.num_distinct == 12


def test_an_expanded_row_overlaps_itself():
    """One row seen four times: 12 elements, 3 places."""
    found = explain(torch.ones(3).expand(4, 3))
    assert found.overlaps
    assert (found.num_elements, found.num_distinct) == (12, 3)


@pytest.mark.parametrize("shape", [(2, 12), (8, 3), (2, 4, 3), (2, 2, 2, 3), (24,), (-1, 3)])
def test_a_view_is_answered_as_torch_does_it(shape):
    """Where torch views, the stride is torch's; where it refuses, why is said, and what is offered runs."""
    x = torch.arange(24).view(2, 3, 4).transpose(1, 2)
    (answer,) = explain(x, view=shape).views
    try:
        expected = x.view(shape).stride()
    except RuntimeError:
        assert answer.stride is None
        assert "into dimension" in answer.why
        for line in answer.instead:
            made = eval(line.partition("#")[0], {"x": x})  # noqa: S307  # the line that a user is told to write
            assert made.numel() == 24
        assert torch.equal(eval(answer.instead[0].partition("#")[0], {"x": x}), x.reshape(shape))  # noqa: S307  # as above
    else:
        assert answer.stride == expected


def test_why_a_transpose_cannot_be_flattened():
    """Dimension 1 would have to step by 3 · 4 = 12 elements, and steps by 1."""
    x = torch.arange(24).view(2, 3, 4).transpose(1, 2)
    (answer,) = explain(x, view=(2, 12)).views
    assert answer.why.endswith("it would have to step by 3 · 4 = 12 there, and steps by 1")


def test_who_shares_the_storage():
    """Tied weights and what it is a view of share; a copy does not; halves of one tensor share no byte."""
    model = nn.Module()
    model.embedding, model.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
    model.head.weight = model.embedding.weight
    found = explain(model.head.weight.detach()[1:], among=model)
    assert {each.name: each.num_shared_bytes for each in found.shared_with if each.name != "what it is a view of"} == {
        "embedding.weight": 4 * 3 * 4,
        "head.weight": 4 * 3 * 4,
    }
    whole = torch.zeros(8)
    halves = explain(whole[:4], among={"other half": whole[4:], "copy": whole.clone()})
    assert {each.name: each.num_shared_bytes for each in halves.shared_with} == {
        "what it is a view of": 16,
        "other half": 0,
    }


def test_what_has_no_strides_or_other_elements():
    """A sparse tensor and a shape of another size are refused."""
    with pytest.raises(AuditError, match="no strides"):
        explain(torch.eye(3).to_sparse())
    with pytest.raises(StrideError, match="5 elements"):
        explain(torch.ones(6), view=(5,))


def test_without_data():
    """A tensor on meta has a place as well."""
    found = explain(torch.empty(4, 6, device="meta").t())
    assert found.stride == (1, 6)
    assert found.is_dense
