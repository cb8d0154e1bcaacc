"""Fakes of the user's objects: equal in all but data, so that a step uses no memory and touches nothing of theirs."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.parameter import is_lazy
from torch.optim import optimizer as optimizer_module
from torch.utils import _foreach_utils as foreach_utils

from torchledger.tracer.errors import TraceError
from torchledger.tracer.layouts import told
from torchledger.tracer.values import asked_as_if_real, hold

# `copy.deepcopy` looks here first, so a function entered for a type copies every object of that type, however deep.
_copiers: dict[type, Callable[[Any, dict[int, Any]], Any]] = copy._deepcopy_dispatch  # type: ignore[attr-defined]  # noqa: SLF001  # the one place where a copy's copies can be chosen


class Fakes:
    """Fake CPU tensors for real ones; one tensor has one fake, and views of one storage stay views of one.

    Attributes:
        memo: what `copy.deepcopy` keeps: the fake of every tensor by its id.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        self.memo: dict[int, Any] = {}
        self._mode = mode
        self._storages: dict[int, torch.Tensor] = {}
        self._held: dict[int, torch.UntypedStorage] = {}

    def tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """The fake of a tensor.

        Raises:
            TraceError: a lazy module's parameter, which has no shape yet.
        """
        fake: torch.Tensor | None = self.memo.get(id(tensor))
        if fake is None:
            fake = self.memo[id(tensor)] = self._faked(tensor)
            hold(fake, tensor, self._held)
        return fake

    def known(self, tensor: torch.Tensor) -> torch.Tensor:
        """The fake of one number on the CPU, its value known: an optimizer reads its step counts."""
        if tensor.dim() or tensor.device.type != "cpu" or tensor.requires_grad or isinstance(tensor, FakeTensor):
            return self.tensor(tensor)
        fake: torch.Tensor | None = self.memo.get(id(tensor))
        if fake is None:
            value = tensor.item()
            with self._mode:
                fake = self.memo[id(tensor)] = torch.tensor(value, dtype=tensor.dtype)
        return fake

    @contextlib.contextmanager
    def copying(self) -> Iterator[None]:
        """While this is on, `copy.deepcopy` makes fakes of tensors."""
        types = (torch.Tensor, nn.Parameter, nn.Buffer)
        before = {cls: _copiers.get(cls) for cls in types}
        for cls in types:
            _copiers[cls] = lambda tensor, _memo: self.tensor(tensor)
        try:
            yield
        finally:
            for cls, copier in before.items():
                if copier is None:
                    del _copiers[cls]
                else:
                    _copiers[cls] = copier

    def _faked(self, tensor: torch.Tensor) -> torch.Tensor:
        if is_lazy(tensor):
            raise TraceError(
                "the model has lazy parameters, whose shapes are not known yet",
                remedy="Run it once on a small real batch, or give its modules sizes (nn.Linear for nn.LazyLinear)",
            )
        if tensor.is_nested:
            raise TraceError(
                "jagged nested tensors have sizes that are data, which a trace does not have",
                remedy="Pass the padded batch (torch.nested.to_padded_tensor), or sequences end to end and "
                "document_lengths",
            )
        if tensor.device.type == "cpu" and not isinstance(tensor, FakeTensor):
            if not tensor.is_leaf:  # the graph behind it is not the step's
                return self._mode.from_tensor(tensor.detach(), static_shapes=True).requires_grad_()
            fake = told(self._mode.from_tensor(tensor, static_shapes=True), tensor)
            if fake.is_leaf:
                fake.grad = None
            return fake
        # Elsewhere (a GPU, meta) the fake stands on the CPU, because fake tensors of a device that is not there abort.
        with self._mode, torch.no_grad():
            empty = self._empty(tensor)
            if isinstance(tensor, nn.Parameter):
                return nn.Parameter(empty, requires_grad=tensor.requires_grad)
            return empty.requires_grad_(tensor.requires_grad)

    def _empty(self, tensor: torch.Tensor) -> torch.Tensor:
        """A CPU tensor of the same geometry; views of one storage share one."""
        if tensor.layout is not torch.strided:
            return torch.empty_like(tensor, device="cpu")
        storage = tensor.untyped_storage()
        if storage._cdata not in self._storages:  # noqa: SLF001  # the storage's address
            whole = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
            if tensor.storage_offset() == 0 and whole.untyped_storage().nbytes() == storage.nbytes():
                self._storages[storage._cdata] = whole  # noqa: SLF001  # as above
                return whole
            self._storages[storage._cdata] = torch.empty(storage.nbytes(), dtype=torch.uint8, device="cpu")  # noqa: SLF001  # as above
        shared = self._storages[storage._cdata].untyped_storage()  # noqa: SLF001  # as above
        empty = torch.empty(0, dtype=tensor.dtype, device="cpu")
        return empty.set_(shared, tensor.storage_offset(), tensor.size(), tensor.stride())


@contextlib.contextmanager
def as_if_real() -> Iterator[None]:
    """Let torch take the same path for fake tensors as for real ones where it looks at their class.

    Optimizers and `clip_grad_norm_` run one parameter at a time for a tensor class they do not know, and
    `copy.deepcopy` asks a tensor of such a class where its data are: a step may copy a model (a moving average).
    """
    known = (foreach_utils._foreach_supported_types, optimizer_module._foreach_supported_types)  # noqa: SLF001  # torch's own subclasses (DTensor) enter themselves here too
    for types in known:
        types.append(FakeTensor)
    original = nn.init._no_grad_trunc_normal_  # the only function of torch.nn.init that looks at values
    nn.init._no_grad_trunc_normal_ = _truncated_normal
    outer = _copiers.get(FakeTensor)  # of a trace around this one
    _copiers[FakeTensor] = _deepcopied
    try:
        with asked_as_if_real():
            yield
    finally:
        del _copiers[FakeTensor]
        if outer is not None:
            _copiers[FakeTensor] = outer
        nn.init._no_grad_trunc_normal_ = original
        for types in known:
            types.remove(FakeTensor)


def _deepcopied(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """A copy of a fake tensor, as `torch.Tensor.__deepcopy__` and that of parameters make one of a real tensor.

    Raises:
        RuntimeError: it was computed from something that requires a gradient, as torch has it.
    """
    if not tensor.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment"
        )
    copied = tensor.detach().clone(memory_format=torch.preserve_format)
    if isinstance(tensor, nn.Parameter):
        copied = nn.Parameter(copied, tensor.requires_grad)
    else:
        copied.requires_grad_(tensor.requires_grad)
        if tensor.grad is not None:
            copied.grad = copy.deepcopy(tensor.grad, memo)
    memo[id(tensor)] = copied
    return copied


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
