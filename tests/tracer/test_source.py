import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger.tracer.source import current_source, source_of


def test_the_line_is_the_callers():
    assert current_source().startswith("tracer/test_source.py:")


def test_frames_of_torch_are_passed_over():
    """A hook runs under torch's frames; the line is still this file's."""
    seen = []
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda *_: seen.append(current_source()))
    functional.relu(layer(torch.zeros(1, 2)))
    assert seen[0].startswith("tracer/test_source.py:")


def test_the_innermost_line_of_a_traceback_that_is_the_users():
    with pytest.raises(RuntimeError) as caught:
        torch.zeros(2) @ torch.zeros(3)
    assert source_of(caught.value.__traceback__).startswith("tracer/test_source.py:")
    assert source_of(None) == ""
