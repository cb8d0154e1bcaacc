"""Where tensors stand when a step says so: `.cuda()`, `.to("cuda")`, `.cpu()`, `device="cuda"`, over fake CPU tensors.

All fake tensors are CPU tensors, because fake CUDA tensors abort the process on a build without CUDA. Which of them are
on the GPU is kept here. What says nothing about a device is on the GPU, as if it were the default device; but what is
then moved there by name was on the host until that moment, as it is with PyTorch's own default. Only the text "cpu"
and `.cpu()` mean the host: a `torch.device` of the CPU comes from a tensor that torch itself looked at, and means where
that one is. To everybody but torch's own Python code, `x.device` says where the tensor would be; torch compares devices
of the fakes, and its C++ asks by another way.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._device import DeviceContext, _device_constructors

from torchledger.tracer.layouts import held
from torchledger.tracer.storages import Entry, Storages
from torchledger.tracer.targets.cuda.replacing import replaced

_TENSOR = torch._C.TensorBase  # noqa: SLF001  # where the methods are that are replaced here
#: Functions that take a device beside those of `torch.device` as a mode, which lets these keep their operand's.
_LIKE: frozenset[Any] = frozenset(
    {
        torch.empty_like, torch.zeros_like, torch.ones_like, torch.full_like, torch.rand_like, torch.randn_like,
        torch.randint_like,
    }
)  # fmt: skip
#: The one that tensors say they are on: `.to(x.device)` means where `x` is, and no device by name.
_CUDA, _META = torch.device("cuda", 0), torch.device("meta")
#: Packages whose code works on the fakes themselves.
_INSIDE = frozenset({"torch", "torchledger"})
_NEW = ("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor", "new_empty_strided")


@contextlib.contextmanager
def devices_of_cuda(storages: Storages) -> Iterator[None]:
    """While this is on, tensors can be asked to stand on CUDA, and are written down as being there or on the host."""
    where = _Where(storages)
    methods = {
        "to": _method(where.to),
        "cuda": _method(where.cuda),
        "cpu": _method(where.cpu),
        "pin_memory": _method(where.pinned),
        "is_cuda": property(where.is_cuda),
        "is_cpu": property(lambda tensor: not where.is_cuda(tensor)),
        "get_device": _method(where.get_device),
    }
    methods |= {name: where.new(name) for name in _NEW}
    constructors: set[Any] = set(_device_constructors())
    factories: dict[str, Callable[..., Any]]
    factories = {name: where.factory(made) for name, made in vars(torch).items() if _is_among(made, constructors)}
    factories |= {like.__name__: where.factory(like, keeps_place=True) for like in _LIKE}
    factories["Generator"] = _Generator
    factories["set_default_device"] = lambda _device: None  # the GPU is the default
    with (
        replaced(torch.Tensor, methods),
        replaced(FakeTensor, {"device": vars(FakeTensor)["device"].getter(where.device)}),
        replaced(torch, factories),
        replaced(DeviceContext, {"__torch_function__": where.in_context(constructors)}),
    ):
        yield


def stays_on_host(storages: Storages, operands: list[int], results: list[torch.Tensor]) -> bool:
    """Whether every operand of an operation stands on the host; its results, if so, are written down as standing there.

    Args:
        storages: the step's memory.
        operands: addresses of the operands' storages.
        results: what the operation returned.
    """
    if not operands:
        return False
    for address in operands:
        entry = storages.entry(address)
        if entry is None or not entry.on_host:
            return False
    for tensor in results:
        storages.allocate(tensor, op="").on_host = True
    return True


def _is_among(value: Any, functions: set[Any]) -> bool:
    return callable(value) and isinstance(value, Hashable) and value in functions


def is_cuda(device: Any) -> bool:
    """Whether this names a CUDA device: `"cuda"`, `"cuda:1"`, a `torch.device` of it, or its number."""
    if isinstance(device, torch.device):
        return device.type == "cuda"
    if isinstance(device, str):
        return device.partition(":")[0] == "cuda"
    return isinstance(device, int) and not isinstance(device, bool)


def _method(bound: Callable[..., Any]) -> Callable[..., Any]:
    """A function that becomes a method of the class it is put on, where the tensor is the first argument."""

    def method(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return bound(tensor, *args, **kwargs)

    return method


class _OfAnyDevice(type):
    """Every generator is one of `_Generator`'s."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _PlainGenerator)


_PlainGenerator = torch.Generator


class _Generator(metaclass=_OfAnyDevice):
    """`torch.Generator`, on the CPU where one of CUDA is asked for: the fakes that it fills stand there."""

    def __new__(cls, device: Any = "cpu") -> torch.Generator:  # type: ignore[misc]  # a plain one
        return _PlainGenerator("cpu" if is_cuda(device) else device)


class _Where:
    """Which storages are on the GPU by name; `Entry.on_host` tells which are on the host."""

    def __init__(self, storages: Storages) -> None:
        self._storages = storages
        self._placed: set[int] = set()

    def factory(
        self, function: Callable[..., torch.Tensor], *, keeps_place: bool = False
    ) -> Callable[..., torch.Tensor]:
        """The function that makes tensors, told where.

        Args:
            function: one of torch's.
            keeps_place: whether it makes them where another tensor is, if no device is named.
        """

        @functools.wraps(function)
        def make(*args: Any, **kwargs: Any) -> torch.Tensor:
            device = kwargs.get("device")
            if device is None:
                made = function(*args, **kwargs)
                asking = "" if keeps_place else sys._getframe(1).f_globals.get("__name__", "")  # noqa: SLF001  # who asks decides
                if asking.startswith("torch.optim"):  # whose counters name no device
                    self._to_host(made)
                return made
            if is_cuda(device):
                made = function(*args, **{**kwargs, "device": "cpu"})
                self._place(made)
                return made
            made = function(*args, **kwargs)
            if device == "cpu" and isinstance(device, str):
                self._to_host(made)
            return made

        return make

    def in_context(self, constructors: set[Any]) -> Callable[..., Any]:
        """What `with torch.device("cuda"):` does to the functions that make tensors."""

        def within(
            context: Any, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            kwargs = kwargs or {}
            if func not in constructors or kwargs.get("device") is not None:
                return func(*args, **kwargs)
            if not is_cuda(context.device):
                return func(*args, **{**kwargs, "device": context.device})
            made = func(*args, **kwargs)
            self._place(made)
            return made

        return within

    def new(self, name: str) -> Callable[..., torch.Tensor]:
        """A method that makes a tensor of its tensor's kind (`new_zeros`), told where."""
        return self.factory(getattr(_TENSOR, name), keeps_place=True)

    def to(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """`Tensor.to` of a device, a dtype, both or another tensor."""
        named = kwargs.get("device", args[0] if args else None)
        if is_cuda(named) and not isinstance(named, bool):
            rest = {name: value for name, value in kwargs.items() if name != "device"}
            if args[1:] and isinstance(args[1], torch.dtype):
                rest["dtype"] = args[1]
            return self._onto_gpu(tensor, rest, by_name=named is not _CUDA)
        if isinstance(named, str) and named == "cpu":
            rest = {name: value for name, value in kwargs.items() if name != "device"}
            if args[1:] and isinstance(args[1], torch.dtype):
                rest["dtype"] = args[1]
            return self._onto_host(tensor, rest)
        made: torch.Tensor = _TENSOR.to(tensor, *args, **kwargs)
        if made is not tensor:
            self._follow(tensor, made)
        return made

    def cuda(self, tensor: torch.Tensor, *_args: Any, **kwargs: Any) -> torch.Tensor:
        """`Tensor.cuda`."""
        kept = {name: value for name, value in kwargs.items() if name == "memory_format"}
        return self._onto_gpu(tensor, kept)

    def cpu(self, tensor: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """`Tensor.cpu`."""
        return self._onto_host(tensor, kwargs)

    def pinned(self, tensor: torch.Tensor, *_args: Any) -> torch.Tensor:
        """`Tensor.pin_memory`: another copy on the host, where it is not counted."""
        self._to_host(tensor)
        return tensor

    def device(self, fake: FakeTensor) -> torch.device:
        """`Tensor.device`: torch itself hears where the fake stands, everybody else where the tensor would."""
        if fake.fake_mode.in_kernel_invocation:
            return _META
        asking = sys._getframe(1).f_globals.get("__name__", "")  # noqa: SLF001  # who asks decides
        if asking.partition(".")[0] in _INSIDE or not self.is_cuda(fake):
            return fake.fake_device
        return _CUDA

    def is_cuda(self, tensor: torch.Tensor) -> bool:
        """`Tensor.is_cuda`."""
        entry = self._entry(tensor)
        return entry is None or not entry.on_host

    def get_device(self, tensor: torch.Tensor) -> int:
        """`Tensor.get_device`."""
        return 0 if self.is_cuda(tensor) else -1

    def _entry(self, tensor: torch.Tensor) -> Entry | None:
        holders = held(tensor)
        return self._storages.entry(holders[0].untyped_storage()._cdata) if holders else None  # noqa: SLF001  # the storage's address

    def _place(self, tensor: torch.Tensor) -> None:
        for holder in held(tensor):
            entry = self._storages.allocate(holder, op="tensor")  # torch.tensor's are entered when they are first used
            entry.on_host = False
            self._placed.add(id(entry))

    def _to_host(self, tensor: torch.Tensor) -> None:
        for holder in held(tensor):
            self._storages.allocate(holder, op="tensor").on_host = True

    def _follow(self, source: torch.Tensor, made: torch.Tensor) -> None:
        """A cast of what is on the host is on the host."""
        entry = self._entry(source)
        if entry is not None and entry.on_host:
            self._to_host(made)

    def _onto_gpu(self, tensor: torch.Tensor, rest: dict[str, Any], *, by_name: bool = True) -> torch.Tensor:
        entry = self._entry(tensor)
        if by_name and entry is not None and not entry.on_host and self._was_made_here(entry, tensor):
            entry.on_host = True  # it has been there since it was made
        if entry is None or not entry.on_host:
            kept: torch.Tensor = _TENSOR.to(tensor, **{"copy": False, **rest}) if rest else tensor
            return kept
        made: torch.Tensor = _TENSOR.to(tensor, **{"dtype": tensor.dtype, **rest, "copy": True})
        self._place(made)
        return made

    def _was_made_here(self, entry: Entry, tensor: torch.Tensor) -> bool:
        """Whether the step's own code made it, outside of modules or while building, and not on the GPU by name."""
        if not entry.op or id(entry) in self._placed or not tensor.is_leaf:
            return False
        return entry.phase == "build" or not entry.module

    def _onto_host(self, tensor: torch.Tensor, rest: dict[str, Any]) -> torch.Tensor:
        entry = self._entry(tensor)
        if entry is None or entry.on_host:
            return _TENSOR.to(tensor, **rest) if rest else tensor
        made: torch.Tensor = _TENSOR.to(tensor, **{"dtype": tensor.dtype, **rest, "copy": True})
        self._to_host(made)
        return made
