"""Values of small tensors: what shapes alone decide, and the whole numbers that the user's own tensors hold.

A step without data cannot know what a tensor holds, but for what `arange` or `zeros` made, token ids and masks that
were passed, and what was computed from these alone. Models ask it: transformers looks whether positions are packed
sequences, and drops a mask that lets everything through, so that attention takes a kernel that needs none. For a fake
tensor it does not look and builds the mask; a trace that let it would be of another step than the one that runs.

Of other numbers it is known that they are finite, as it is assumed: that is what models and loops ask before they mend.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_leaves, tree_map

_VALUE = "torchledger_value"
#: What is to be called when somebody asks for a value that was assumed.
_ASKED = "torchledger_asked"
#: Larger ones are not kept: a value is real memory, and real work.
_LARGEST = 1 << 20
_MADE_OF_NUMBERS = frozenset(
    {
        "arange", "linspace", "zeros", "ones", "eye", "full", "scalar_tensor", "tril_indices", "triu_indices",
        "empty",  # holds nothing that counts until it is written
    }
)  # fmt: skip
_ITEM = torch.ops.aten._local_scalar_dense.default  # noqa: SLF001  # what `.item()` and `if tensor` ask
_UNTOLD = frozenset({torch.Tag.nondeterministic_seeded, torch.Tag.inplace_view})
#: Operations whose result's shape, or whose answer in Python, values decide.
_ANSWERING = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})
_PLAIN = frozenset({torch.Tensor, nn.Parameter, nn.Buffer})
_aten: Any = torch.ops.aten
#: What finite numbers say of themselves: comparisons with infinity, with themselves, and what is asked by name.
_OF_INFINITY = {_aten.eq.Scalar: False, _aten.ne.Scalar: True}
_OF_ITSELF = {_aten.eq.Tensor: True, _aten.ne.Tensor: False}
_BY_NAME = {_aten.isnan.default: False, _aten.isinf.default: False}
_FINITE = "every number is finite, where the code asks (which values there are is data)"

#: The module of transformers that asks whether a tensor is fake.
_ASKS = "transformers.utils.import_utils"

Run = Callable[[Any, tuple[Any, ...], dict[str, Any], Any, list[torch.Tensor]], Any]


class Values:
    """Runs operations on fake tensors, and on the values of those whose values are known.

    Args:
        run: runs an operation on fake tensors.
        assume: told what is assumed, when somebody asks for it.
    """

    def __init__(self, run: Run, assume: Callable[[str], None]) -> None:
        self._run = run
        self._assume = assume
        # By address, which nothing else gets while it is referred to.
        self._spoiled: dict[int, StorageWeakRef] = {}

    def run(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], key: Any, tensors: list[torch.Tensor]
    ) -> Any:
        """Run an operation; `key` and `tensors` are those of its arguments."""
        if tensors:
            for tensor in tensors:
                if _VALUE not in tensor.__dict__ and not _is_constant(tensor):
                    if len(tensors) > 1 and any(_VALUE in other.__dict__ for other in tensors):
                        self._spoil(func, args, kwargs)
                    result = self._run(func, args, kwargs, key, tensors)
                    answer = _of_finite(func, args)
                    if answer is not None and result.numel() <= _LARGEST:
                        with no_dispatch():
                            value = torch.full(result.shape, answer)
                        know(result, value, lambda: self._assume(_FINITE))
                    return result
            if any(tensor.untyped_storage()._cdata in self._spoiled for tensor in tensors):  # noqa: SLF001  # the storage's address
                return self._run(func, args, kwargs, key, tensors)
            if func is _ITEM:
                value = read(tensors[0])
                with no_dispatch():
                    return value.item()
            if not _ANSWERING.isdisjoint(getattr(func, "tags", ())):  # a higher-order operation has none
                return _answer(func, args, kwargs, tensors)
        elif func.namespace != "aten" or func.name().removeprefix("aten::").partition(".")[0] not in _MADE_OF_NUMBERS:
            return self._run(func, args, kwargs, key, tensors)
        result = self._run(func, args, kwargs, key, tensors)
        self._tell(func, args, kwargs, result)
        asked = next((tensor.__dict__[_ASKED] for tensor in tensors if _ASKED in tensor.__dict__), None)
        if asked is not None:
            for fake in tree_leaves(result):
                if isinstance(fake, FakeTensor) and _VALUE in fake.__dict__:
                    fake.__dict__[_ASKED] = asked
        return result

    def _tell(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        fakes = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        small = all(type(fake) is FakeTensor and fake.numel() <= _LARGEST for fake in fakes)
        if not (fakes and small and func.namespace == "aten" and _UNTOLD.isdisjoint(func.tags)):
            self._spoil(func, args, kwargs)
            return
        try:
            with no_dispatch():
                real_args, real_kwargs = tree_map(_value, (args, kwargs))
                real = func(*real_args, **real_kwargs)
        except (RuntimeError, AssertionError):  # the CPU has no kernel for what the target runs
            self._spoil(func, args, kwargs)
            return
        _let_transformers_ask()
        for fake, value in zip(
            fakes, (leaf for leaf in tree_leaves(real) if isinstance(leaf, torch.Tensor)), strict=True
        ):
            fake.__dict__[_VALUE] = value

    def _spoil(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """What is written in place from unknown values is unknown, as is everything that shares its memory."""
        schema = getattr(func, "_schema", None)  # a higher-order operation has none, and writes nothing
        for number, argument in enumerate(schema.arguments if schema else ()):
            if argument.is_write:
                written = args[number] if number < len(args) else kwargs.get(argument.name)
                for tensor in tree_leaves(written):
                    if isinstance(tensor, torch.Tensor) and _VALUE in tensor.__dict__:
                        storage = tensor.untyped_storage()
                        self._spoiled[storage._cdata] = StorageWeakRef(storage)  # type: ignore[no-untyped-call]  # noqa: SLF001  # the address


def hold(fake: torch.Tensor, real: torch.Tensor, storages: dict[int, torch.UntypedStorage]) -> None:
    """Let a fake hold what a tensor of the user's does, if that is a few whole numbers.

    Args:
        fake: stands for it.
        real: is never written to, what the step writes goes to a copy.
        storages: copies of storages by the address of the original: views of one storage stay views of one.
    """
    storage = real.untyped_storage() if type(real) in _PLAIN and real.layout is torch.strided else None
    if storage is None or real.device.type == "meta" or real.dtype.is_floating_point or real.dtype.is_complex:
        return
    if storage.nbytes() <= _LARGEST * real.dtype.itemsize:
        address = storage._cdata  # noqa: SLF001  # the storage's address
        copied = storages.get(address)
        if copied is None:
            copied = storages[address] = storage.clone() if real.device.type == "cpu" else storage.cpu()  # type: ignore[no-untyped-call]  # torch's methods have no types
        value = torch.empty(0, dtype=real.dtype, device="cpu")
        fake.__dict__[_VALUE] = value.set_(copied, real.storage_offset(), real.size(), real.stride())


def holds(fake: torch.Tensor) -> bool:
    """Whether the value of a tensor is known."""
    return _VALUE in fake.__dict__


def known_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the same is known of two tensors: nothing, or equal values."""
    if holds(one) is not holds(other):
        return False
    with no_dispatch():
        return not holds(one) or torch.equal(one.__dict__[_VALUE], other.__dict__[_VALUE])


def know(fake: torch.Tensor, value: torch.Tensor, asked: Callable[[], None]) -> None:
    """Say what a tensor is assumed to hold; `asked` is called when somebody reads that, or what is computed from it."""
    fake.__dict__[_VALUE], fake.__dict__[_ASKED] = value, asked


def read(fake: torch.Tensor) -> torch.Tensor:
    """A copy of the value of a tensor whose value is known."""
    asked = fake.__dict__.get(_ASKED)
    if asked is not None:
        asked()
    with no_dispatch():
        copied: torch.Tensor = fake.__dict__[_VALUE].clone()
        return copied


def _answer(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[torch.Tensor]) -> Any:
    """What an operation of `_ANSWERING` returns for known values."""
    asked = {tensor.__dict__[_ASKED] for tensor in tensors if _ASKED in tensor.__dict__}
    for ask in asked:
        ask()
    with no_dispatch():
        real_args, real_kwargs = tree_map(_value, (args, kwargs))
        real = func(*real_args, **real_kwargs)
    return tree_map(_fake_of, real)


def _fake_of(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    fake = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype)
    fake.__dict__[_VALUE] = leaf
    return fake


def _of_finite(func: Any, args: tuple[Any, ...]) -> bool | None:
    """What an operation says of every one of some finite numbers, `None` where that depends on the number."""
    if func in _BY_NAME:
        return _BY_NAME[func]
    if func in _OF_INFINITY and isinstance(args[1], float) and math.isinf(args[1]):
        return _OF_INFINITY[func]
    return _OF_ITSELF[func] if func in _OF_ITSELF and args[0] is args[1] else None


def _value(leaf: Any) -> Any:
    if isinstance(leaf, FakeTensor):
        return leaf.__dict__[_VALUE]
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


def _is_constant(tensor: torch.Tensor) -> bool:
    """A real tensor that the step makes of Python numbers (`torch.tensor(0)`, `mask[0] = 1`), or that it reached."""
    return type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.numel() <= _LARGEST


@contextlib.contextmanager
def asked_as_if_real() -> Iterator[None]:
    """Let transformers and numpy ask fake tensors whose values are known what they ask real ones."""
    is_outermost = not _is_let_ask()
    _let_transformers_ask()
    outer = FakeTensor.__dict__.get("numpy")  # of a trace around this one
    FakeTensor.numpy = _numpy  # type: ignore[assignment,method-assign]  # torch.Tensor's is the one underneath
    try:
        yield
    finally:
        del FakeTensor.numpy
        if outer is not None:
            FakeTensor.numpy = outer  # type: ignore[method-assign]  # as above
        if is_outermost and _is_let_ask():
            module = sys.modules[_ASKS]
            module.is_fake_tensor = module.is_fake_tensor.original  # type: ignore[attr-defined]  # what it was


def _is_let_ask() -> bool:
    return hasattr(getattr(sys.modules.get(_ASKS), "is_fake_tensor", None), "original")


def _let_transformers_ask() -> None:
    """Put a function in the place of transformers' own, once it is there: a step may be what imports it."""
    module: Any = sys.modules.get(_ASKS)
    original = getattr(module, "is_fake_tensor", None)
    if original is None or hasattr(original, "original"):
        return

    def is_fake_tensor(x: Any) -> bool:
        return bool(original(x)) and not holds(x)

    is_fake_tensor.original = original  # type: ignore[attr-defined]  # to be put back
    module.is_fake_tensor = is_fake_tensor


def _numpy(fake: FakeTensor, **options: Any) -> Any:
    """`Tensor.numpy`: an array of its own, which torch's would share with the tensor."""
    seen = fake.view(fake.shape)  # which knows no value where something unknown was written
    if _VALUE not in seen.__dict__:
        return torch.Tensor.numpy(fake, **options)
    value = read(seen)
    with no_dispatch():
        return value.numpy()
