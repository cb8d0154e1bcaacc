"""Functions of nothing: what a step and a builder have to be, refused with a remedy where they are something else."""

from __future__ import annotations

import inspect

from torch import nn

from torchledger.tracer.errors import TraceError


def require_function_of_nothing(function: object, what: str = "step") -> None:
    """Refuse what to call with nothing would run nothing, or fail.

    Args:
        function: what is about to be called.
        what: what it is to be: `step`, `builder`.

    Raises:
        TraceError: it is a model, no function, takes arguments, or is a generator or coroutine.
    """
    if isinstance(function, nn.Module):
        raise TraceError(
            f"a model is no {what}", remedy="Use trace(model, batch), or pass a function that runs the step"
        )
    if not callable(function):
        raise TraceError(f"{type(function).__name__} is no function", remedy="Pass a function that runs the step")
    if any(
        is_so(function) for is_so in (inspect.isgeneratorfunction, inspect.iscoroutinefunction, _is_async_generator)
    ):
        raise TraceError(
            f"{getattr(function, '__name__', f'the {what}')} is a generator or coroutine: to call it runs nothing",
            remedy="Pass a plain function",
        )
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise TraceError(
            f"a {what} is called with nothing, and this one has a {error}",
            remedy=f"Pass a function of nothing that calls it, as lambda: {what}(...)",
        ) from error
    except ValueError:  # a builtin, which does not tell
        return


def _is_async_generator(function: object) -> bool:
    return inspect.isasyncgenfunction(function)
