"""Attributes of torch and operations of its dispatcher replaced for a while, and put back whatever happens."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.library import Library

_ABSENT = object()
#: What runs now in place of operations that torch takes apart; below autograd (in inference mode) nobody else asks.
INSTEAD: dict[Any, Callable[..., Any]] = {}
#: Operations that torch takes apart on the CPU, and does not now.
KEPT_WHOLE: set[Any] = set()


@contextlib.contextmanager
def operation_replaced(name: str, kernel: Callable[..., Any]) -> Iterator[None]:
    """While this is on, `kernel` runs wherever the composite operation aten::`name` is called, from C++ as well."""
    operation = _operation(name)
    outer = INSTEAD.get(operation)  # of a trace that this one runs within
    with _entered("AutogradCPU", name, kernel):
        INSTEAD[operation] = kernel
        try:
            yield
        finally:
            del INSTEAD[operation]
            if outer is not None:
                INSTEAD[operation] = outer


@contextlib.contextmanager
def operation_kept_whole(name: str) -> Iterator[None]:
    """While this is on, the composite operation aten::`name` is one operation, with its own formula of autograd.

    torch takes an operation apart above autograd where the device has no kernel for it. Fake tensors run no kernel, so
    any will do.
    """
    operation = _operation(name)
    with _entered("CPU", name, _unreached):
        KEPT_WHOLE.add(operation)
        try:
            yield
        finally:
            KEPT_WHOLE.discard(operation)


def _operation(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


@contextlib.contextmanager
def _entered(key: str, name: str, kernel: Callable[..., Any]) -> Iterator[None]:
    library = Library("aten", "IMPL", key)  # type: ignore[no-untyped-call]  # torch's class has no types
    try:
        enter: Callable[..., None] = library.impl
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says that a kernel is overridden, which is the point
            enter(name, kernel, allow_override=True)
        yield
    finally:
        library._destroy()  # type: ignore[no-untyped-call]  # noqa: SLF001  # as torch.library's own scoped library


def _unreached(*_args: Any) -> Any:
    raise AssertionError("a fake tensor's operation runs no kernel")


@contextlib.contextmanager
def replaced(owner: Any, attributes: Mapping[str, Any]) -> Iterator[None]:
    """While this is on, `owner` has these attributes."""
    before = {name: vars(owner).get(name, _ABSENT) for name in attributes}
    try:
        for name, value in attributes.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            if value is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
