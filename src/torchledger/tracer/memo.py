"""What an operation returned for fake tensors of the same shapes before, made anew without running it again.

A step runs the same few operations on the same few shapes thousands of times. torch's fake mode has a cache of its own,
whose key costs several times what the recorder's key does; the recorder has to make that one anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_map

from torchledger.tracer.errors import TraceError
from torchledger.tracer.layouts import told

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Made:
    """One result.

    Attributes:
        operand: number of the tensor operand whose storage it shares, -1 for a storage of its own.
        shape, stride, dtype, offset: its geometry.
        is_operand: whether it is that operand itself, written in place.
    """

    operand: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    offset: int
    is_operand: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """All results of an operation: `container` is tuple or list, `None` for a single tensor."""

    made: tuple[Made | None, ...]
    container: type | None


class Memo:
    """Makes results of operations on one fake mode's CPU tensors from their geometry."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        self.default_dtype = torch.get_default_dtype()
        with mode:
            template = torch.empty(0)
        # Everything that torch's constructor sets, in whatever version of torch this is.
        self._state = dict(template.__dict__)

    def knows(self, operands: list[torch.Tensor]) -> bool:
        """Whether geometry is all there is to these operands: no constant that torch computes with, no other device.

        A fake on meta stays there: a model may be built without memory, and get some when ranks have their shares.
        """
        for operand in operands:
            if type(operand) is not FakeTensor or operand.constant is not None or operand.fake_device.type == "meta":
                return False
        return torch.get_default_dtype() is self.default_dtype

    @staticmethod
    def has_real(operands: list[torch.Tensor]) -> bool:
        """Whether a real tensor is among them: one that the user's code reached for, and did not make."""
        return any(type(operand) in {torch.Tensor, nn.Parameter, nn.Buffer} for operand in operands)

    def faked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with fakes for real tensors: torch would run an operation on real ones alone for real."""

        def fake(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
                if value.requires_grad and value.is_leaf:  # its gradient would land on the user's own
                    raise TraceError(
                        f"the step trains a tensor of shape {tuple(value.shape)} that a trace cannot reach beforehand",
                        remedy="Hold it in a variable or an object that the step uses, or build it in the step",
                    )
                return told(self._mode.from_tensor(value, static_shapes=True), value)
            return value

        faked: tuple[tuple[Any, ...], dict[str, Any]] = tree_map(fake, (args, kwargs))
        return faked

    def learn(self, result: Any, operands: list[torch.Tensor]) -> Result | None:
        """What `make` needs to make such a result again; `None` where geometry does not tell it all."""
        if result is None:  # written in place, nothing returned: lists of tensors, as optimizers have them
            return Result((), type(None))
        known = _Operands(operands)
        if isinstance(result, torch.Tensor):
            made = _made(result, known)
            return None if made is None else Result((made,), None)
        if type(result) not in {tuple, list}:
            return None
        all_made: list[Made | None] = []
        for item in result:
            made = None if item is None else _made(item, known)
            if item is not None and made is None:
                return None
            all_made.append(made)
        own = [item.untyped_storage()._cdata for item, made in zip(result, all_made, strict=True) if _is_own(made)]  # noqa: SLF001  # the storage's address
        if len(set(own)) < len(own):
            return None
        return Result(tuple(all_made), type(result))

    def make(self, result: Result, operands: list[torch.Tensor]) -> Any:
        """The result anew: new storages where they were new, the operands' where they were theirs."""
        if result.container is None:
            made = result.made[0]
            assert made is not None
            return self._one(made, operands)
        if result.container is type(None):
            return None
        return result.container([None if made is None else self._one(made, operands) for made in result.made])

    def alias(self, tensor: torch.Tensor) -> torch.Tensor:
        """What `detach` returns."""
        offset = int(tensor.storage_offset())
        return self._one(Made(0, tensor.shape, tensor.stride(), tensor.dtype, offset), [tensor])

    def _one(self, made: Made, operands: list[torch.Tensor]) -> torch.Tensor:
        if made.is_operand:
            return operands[made.operand]
        if made.operand >= 0 and torch.is_inference_mode_enabled() and not operands[made.operand].is_inference():
            with torch.inference_mode(mode=False), torch.no_grad():  # a view of a normal tensor is normal in there too
                return self._new(made, operands)
        return self._new(made, operands)

    def _new(self, made: Made, operands: list[torch.Tensor]) -> torch.Tensor:
        with torch._C._DisableTorchDispatch():  # noqa: SLF001  # as torch's fake mode does it
            if made.operand < 0:
                plain = torch.empty_strided(made.shape, made.stride, dtype=made.dtype, device="meta")
            else:
                plain = torch.empty(0, dtype=made.dtype, device="meta")
                plain.set_(operands[made.operand].untyped_storage(), made.offset, made.shape, made.stride)
            fake: torch.Tensor = torch.Tensor._make_subclass(  # noqa: SLF001  # as above
                FakeTensor, plain, require_grad=False, dispatch_device=True, device_for_backend_keys=_CPU
            )
        torch._C._set_throw_on_mutable_data_ptr(fake)  # noqa: SLF001  # as above
        fake.__dict__.update(self._state)
        return fake


def _is_own(made: Made | None) -> bool:
    return made is not None and made.operand < 0


class _Operands:
    """First operand of each identity and of each storage: a list operation has a thousand of them."""

    def __init__(self, operands: list[torch.Tensor]) -> None:
        self.by_identity: dict[int, int] = {}
        self.by_storage: dict[int, int] = {}
        for number, operand in enumerate(operands):
            self.by_identity.setdefault(id(operand), number)
            self.by_storage.setdefault(operand.untyped_storage()._cdata, number)  # noqa: SLF001  # the storage's address


def _made(item: Any, operands: _Operands) -> Made | None:
    if type(item) is not FakeTensor or item.constant is not None or item.layout is not torch.strided:
        return None
    if item.fake_device != _CPU or item.is_conj() or item.is_neg():
        return None
    shape, stride, offset = tuple(item.shape), item.stride(), int(item.storage_offset())
    storage = item.untyped_storage()
    number = operands.by_identity.get(id(item))
    if number is not None:
        return Made(number, shape, stride, item.dtype, offset, is_operand=True)
    number = operands.by_storage.get(storage._cdata)  # noqa: SLF001  # the storage's address
    if number is not None:
        return Made(number, shape, stride, item.dtype, offset)
    extent = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) if 0 not in shape else 0
    if offset or storage.nbytes() != extent * item.dtype.itemsize:
        return None
    return Made(-1, shape, stride, item.dtype, offset)
