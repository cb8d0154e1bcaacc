"""Fakes of the user's objects: equal in all but data, so that a step uses no memory and touches nothing of theirs."""

from __future__ import annotations

import contextlib
import copy
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim import optimizer as optimizer_module
from torch.utils import _foreach_utils as foreach_utils

T = TypeVar("T")

# `copy.deepcopy` looks here first, so a function entered for a type copies every object of that type, however deep.
_copiers: dict[type, Callable[[Any, dict[int, Any]], Any]] = copy._deepcopy_dispatch  # type: ignore[attr-defined]  # noqa: SLF001  # the one place where a copy's copies can be chosen


class Fakes:
    """Deep copies whose tensors are fake CPU tensors; one tensor has one fake, so tied stays tied."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        self._memo: dict[int, Any] = {}

    def of(self, thing: T, tensor_types: frozenset[type] = frozenset()) -> T:
        """A deep copy of anything, its tensors fake.

        Args:
            thing: a module, optimizer, batch or container of them.
            tensor_types: tensor subclasses that are in it.
        """
        types = {torch.Tensor, nn.Parameter, nn.Buffer, *tensor_types}
        before = {cls: _copiers.get(cls) for cls in types}
        for cls in types:
            _copiers[cls] = self._tensor
        try:
            return copy.deepcopy(thing, self._memo)
        finally:
            for cls, copier in before.items():
                if copier is None:
                    del _copiers[cls]
                else:
                    _copiers[cls] = copier

    def _tensor(self, tensor: torch.Tensor, _memo: dict[int, Any]) -> torch.Tensor:
        if tensor.device.type == "cpu" and not isinstance(tensor, FakeTensor):
            fake: torch.Tensor = self._mode.from_tensor(tensor, static_shapes=True)
            if fake.is_leaf:
                fake.grad = None
            return fake
        # Elsewhere (a GPU, meta) the fake stands on the CPU, because fake tensors of a device that is not there abort.
        with self._mode:
            empty = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
            if isinstance(tensor, nn.Parameter):
                return nn.Parameter(empty, requires_grad=tensor.requires_grad)
            return empty.requires_grad_(tensor.requires_grad)


def tensor_types(model: nn.Module) -> frozenset[type]:
    """Classes of a model's parameters and buffers."""
    return frozenset(type(tensor) for tensors in (model.parameters(), model.buffers()) for tensor in tensors)


@contextlib.contextmanager
def as_if_real() -> Iterator[None]:
    """Let torch take the same path for fake tensors as for real ones where it looks at their class.

    Optimizers and `clip_grad_norm_` run one parameter at a time for a tensor class they do not know.
    """
    known = (foreach_utils._foreach_supported_types, optimizer_module._foreach_supported_types)  # noqa: SLF001  # torch's own subclasses (DTensor) enter themselves here too
    for types in known:
        types.append(FakeTensor)
    original = nn.init._no_grad_trunc_normal_  # the only function of torch.nn.init that looks at values
    nn.init._no_grad_trunc_normal_ = _truncated_normal
    try:
        yield
    finally:
        nn.init._no_grad_trunc_normal_ = original
        for types in known:
            types.remove(FakeTensor)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Leave every global random stream as it was."""
    numpy = sys.modules.get("numpy")
    state, python_state = torch.random.get_rng_state(), random.getstate()
    numpy_state = numpy.random.get_state() if numpy is not None else None
    try:
        yield
    finally:
        torch.random.set_rng_state(state)
        random.setstate(python_state)
        if numpy is not None:
            numpy.random.set_state(numpy_state)


def _truncated_normal(  # noqa: PLR0917  # the arguments of the function it stands in for
    tensor: torch.Tensor, mean: float, std: float, a: float, b: float, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Two rounds of torch.nn.init's rejection sampling, whose rounds depend on the values drawn."""
    with torch.no_grad():
        result = tensor.normal_(mean, std, generator=generator)
        for _ in range(2):
            mask = (result < a) | (result > b)
            result = torch.where(mask, torch.empty_like(result).normal_(mean, std, generator=generator), result)
        return tensor.copy_(result)
