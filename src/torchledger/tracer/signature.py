"""`Signature`: an operation call without its data, so that it can be counted once and replayed on real tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch._ops import OpOverload

from torchledger.tracer.layouts import held, num_bytes, num_values

#: Names of number formats, as `formats` and `Line.number_format` spell them.
NUMBER_FORMATS: dict[torch.dtype, str] = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8_e4m3",
    torch.float8_e5m2: "fp8_e5m2",
}


def number_format(dtype: torch.dtype) -> str:
    """The house's name of a torch dtype (`fp32`); integers keep torch's (`int64`).

    >>> number_format(torch.bfloat16), number_format(torch.int64)
    ('bf16', 'int64')
    """
    return NUMBER_FORMATS.get(dtype) or str(dtype).removeprefix("torch.")


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """A tensor without its data.

    Attributes:
        shape: sizes.
        stride: strides in elements.
        dtype: torch dtype.
        offset: storage offset in elements.
        storage: number of its storage among the distinct storages of the call's arguments: equal numbers alias.
        storage_bytes: size of that storage in bytes.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    offset: int = 0
    storage: int = 0
    storage_bytes: int = 0

    @property
    def num_elements(self) -> int:
        """Product of the sizes."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def num_bytes(self) -> int:
        """Bytes of its distinct elements: an expanded dimension (stride 0) is read once."""
        count = 1
        for size, stride in zip(self.shape, self.stride, strict=True):
            count *= size if stride else min(size, 1)
        return count * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class SparseMeta:
    """A sparse tensor without its data: it can be counted, not replayed.

    Attributes:
        layout: torch layout.
        shape: sizes.
        dtype: torch dtype of its values.
        num_values: values that it stores, zeros among them too; `None` where only data tells.
        num_bytes: bytes of its values and indices.
    """

    layout: torch.layout
    shape: tuple[int, ...]
    dtype: torch.dtype
    num_values: int | None
    num_bytes: int


# A value in a call: a TensorMeta or SparseMeta, a plain hashable, or a tuple of values that begins with "list".
Value: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Signature:
    """An operation call without its data: hashable, and equal for equal calls.

    Attributes:
        op: name of the overload (`aten.mm.default`).
        args: positional arguments; tensors as `TensorMeta`, lists as `("list", ...)`.
        kwargs: keyword arguments as `(name, value)` pairs.
        number_types: initials of the types of the numbers among them: 1, 1.0 and True are equal in Python, not here.
        needed: in the backward pass, which inputs of the operation's node need a gradient, where its kernel makes all.
    """

    op: str
    args: tuple[Value, ...]
    kwargs: tuple[tuple[str, Value], ...] = ()
    number_types: str = ""
    needed: tuple[bool, ...] | None = None

    def overload(self) -> Any:
        """The operation itself.

        Raises:
            AttributeError: this build of torch does not have it.
        """
        namespace, packet, overload = self.op.split(".")
        return getattr(getattr(getattr(torch.ops, namespace), packet), overload)

    def arguments(self, make: Callable[[TensorMeta], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments with every `TensorMeta` replaced by `make` of it, lists as lists again."""
        return tuple(_filled(value, make) for value in self.args), {k: _filled(v, make) for k, v in self.kwargs}

    def bound(self) -> dict[str, Value]:
        """Every argument by its name in the schema, defaults included."""
        named: dict[str, Value] = {}
        given = dict(self.kwargs)
        for position, argument in enumerate(self.overload()._schema.arguments):  # noqa: SLF001  # torch's only way to a schema
            if position < len(self.args) and not argument.kwarg_only:
                named[argument.name] = self.args[position]
            else:
                named[argument.name] = given.get(argument.name, argument.default_value)
        return named

    def tensors(self) -> list[TensorMeta]:
        """All tensors among the arguments, in order."""
        found: list[TensorMeta] = []
        for value in (*self.args, *(value for _, value in self.kwargs)):
            _collect(value, found)
        return found


def real_arguments(signature: Signature) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of zeros on the CPU with the signature's shapes, strides and aliasing, for a replay of the call."""
    storages: dict[int, torch.Tensor] = {}

    def make(meta: TensorMeta) -> torch.Tensor:
        if meta.storage not in storages:
            storages[meta.storage] = torch.zeros(meta.storage_bytes, dtype=torch.uint8)
        typed = storages[meta.storage].view(torch.uint8).untyped_storage()
        empty = torch.empty(0, dtype=meta.dtype)
        return empty.set_(typed, meta.offset, meta.shape, meta.stride)

    return signature.arguments(make)


class Encoder:
    """Turns calls into hashable keys fast; a key becomes a `Signature` only the first time it is seen."""

    __slots__ = ("_storages",)

    def __init__(self) -> None:
        self._storages: dict[int, int] = {}

    def key(self, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[torch.Tensor]) -> tuple[Any, ...]:
        """A hashable key of the arguments; every tensor among them is appended to `tensors`."""
        self._storages = {}
        encoded = tuple([self._value(arg, tensors) for arg in args])
        if not kwargs:
            return (encoded,)
        return (encoded, tuple([(name, self._value(value, tensors)) for name, value in kwargs.items()]))

    def _value(self, value: Any, tensors: list[torch.Tensor]) -> Value:
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided:
                parts = held(value)
                tensors.extend(parts)
                return (SparseMeta, value.layout, value.shape, value.dtype, num_values(value), num_bytes(parts))
            tensors.append(value)
            storage = value.untyped_storage()
            number = self._storages.setdefault(storage._cdata, len(self._storages))  # noqa: SLF001  # the storage's address
            return (
                TensorMeta,
                value.shape,
                value.stride(),
                value.dtype,
                value.storage_offset(),
                number,
                storage.nbytes(),
            )
        if isinstance(value, (list, tuple)):
            return ("list", *[self._value(item, tensors) for item in value])
        if isinstance(value, (int, float)):
            # 1, 1.0 and True are equal in Python but not to an operation.
            return (type(value), value)
        if isinstance(value, dict):
            return ("list", *[self._value(item, tensors) for item in value.values()])
        return None if isinstance(value, torch.Generator) else value


def with_wrapped_number(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key with the number in second place as the tensor that autograd saved it as: nothing wraps it again."""
    args = key[0]
    kind, _ = args[1]
    dtype = torch.int64 if kind is int else torch.bool if kind is bool else torch.float64
    number = (TensorMeta, (), (), dtype, 0, -1, dtype.itemsize)
    return ((args[0], number, *args[2:]), *key[1:])


def decode(op: str, key: tuple[Any, ...]) -> Signature:
    """The signature that a key of `Encoder` stands for."""
    args = tuple(_decoded(value) for value in key[0])
    kwargs = tuple((name, _decoded(value)) for name, value in key[1]) if len(key) > 1 else ()
    return Signature(op, args, kwargs, _number_types(key))


def name_of(func: Any) -> str:
    """Name of an operation's overload (`aten.mm.default`); higher-order ones are given a namespace of their own."""
    return str(func) if isinstance(func, OpOverload) else f"higher_order.{func.name()}.default"


def meta_of(tensor: torch.Tensor) -> TensorMeta:
    """The tensor without its data, as if alone in its call."""
    storage_bytes = tensor.untyped_storage().nbytes()
    shape, stride, offset = tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
    return TensorMeta(shape, stride, tensor.dtype, offset, 0, storage_bytes)


def _number_types(value: Value) -> str:
    if not isinstance(value, tuple) or (value and value[0] in {TensorMeta, SparseMeta}):
        return ""
    if len(value) == 2 and isinstance(value[0], type):
        return str(value[0].__name__[0])
    return "".join(_number_types(item) for item in value)


def _decoded(value: Value) -> Value:
    if not isinstance(value, tuple):
        return value
    if value[0] is TensorMeta:
        return TensorMeta(tuple(value[1]), *value[2:])
    if value[0] is SparseMeta:
        return SparseMeta(value[1], tuple(value[2]), *value[3:])
    if value[0] == "list":
        return ("list", *[_decoded(item) for item in value[1:]])
    return value[1]


def _filled(value: Value, make: Callable[[TensorMeta], Any]) -> Any:
    if isinstance(value, TensorMeta):
        return make(value)
    if isinstance(value, tuple) and value and value[0] == "list":
        return [_filled(item, make) for item in value[1:]]
    return value


def _collect(value: Value, found: list[TensorMeta]) -> None:
    if isinstance(value, TensorMeta):
        found.append(value)
    elif isinstance(value, tuple):
        for item in value[1:]:
            _collect(item, found)
