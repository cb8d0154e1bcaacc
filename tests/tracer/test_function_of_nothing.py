"""What is called with nothing is refused before the call where that would run nothing or fail."""

import functools

import pytest
from torch import nn

from torchledger.tracer import TraceError
from torchledger.tracer.function_of_nothing import require_function_of_nothing


async def _stream():
    yield


@pytest.mark.parametrize("fine", [lambda: None, lambda size=3: size, functools.partial(int, "3"), dict, nn.Identity])
def test_functions_that_can_be_called_with_nothing(fine):
    """Classes, partial functions and builtins among them."""
    assert require_function_of_nothing(fine) is None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (3, "int is no function"),
        (nn.Identity(), "a model is no builder"),
        (nn.Linear, "missing a required argument: 'in_features'"),
        (_stream, "_stream is a generator or coroutine"),
    ],
)
def test_what_is_none(wrong, said):
    with pytest.raises(TraceError, match=said):
        require_function_of_nothing(wrong, "builder")
