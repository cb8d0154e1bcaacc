"""Looking along with a recorder."""

import torch

from torchledger.tracer import Recorder
from torchledger.tracer.observed import observed


def test_every_operation_is_told_of_views_too():
    """A transpose, its copy and a sum: three operations, two of them calls; afterwards none is told of."""
    seen = []
    with Recorder() as recorder:
        with observed(recorder, lambda func, *_: seen.append((str(func), len(recorder.calls)))):
            torch.ones(2, 3).t().contiguous().sum()
        torch.ones(2)
    assert [name for name, _ in seen] == [
        "aten.ones.default",
        "aten.t.default",
        "aten.clone.default",
        "aten.sum.default",
    ]
    for name, index in seen:
        assert name == "aten.t.default" or recorder.calls[index].signature.op == name


def test_storages_of_arguments_are_known_by_then():
    """What an operation reads is entered before it is told of."""
    x, known = torch.ones(2), []
    with (
        Recorder() as recorder,
        observed(
            recorder,
            lambda _func, _args, _kwargs, tensors, _result: known.extend(
                recorder.storages.entry(tensor.untyped_storage()._cdata) is not None for tensor in tensors
            ),
        ),
    ):
        x.exp().add(1)
    assert known == [True, True]
