"""Values of the small whole-number tensors that shapes alone decide: positions, and masks made of them.

A step without data cannot know what a tensor holds, but for what `arange` or `zeros` made and what was computed from
that alone. Models ask it: transformers looks whether positions are packed sequences, and drops a mask that lets
everything through, so that attention takes a kernel that needs none. For a fake tensor it does not look and builds the
mask; a trace that let it would be of another step than the one that runs.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_leaves, tree_map

_VALUE = "torchledger_value"
#: What is to be called when somebody asks for a value that was assumed.
_ASKED = "torchledger_asked"
#: Larger ones are not kept: a value is real memory, and real work.
_LARGEST = 1 << 16
_MADE_OF_NUMBERS = frozenset({"arange", "zeros", "ones", "full", "scalar_tensor"})
_ITEM = torch.ops.aten._local_scalar_dense.default  # noqa: SLF001  # what `.item()` and `if tensor` ask
_UNTOLD = frozenset({torch.Tag.nondeterministic_seeded, torch.Tag.inplace_view, torch.Tag.dynamic_output_shape})

Run = Callable[[Any, tuple[Any, ...], dict[str, Any], Any, list[torch.Tensor]], Any]


class Values:
    """Runs operations on fake tensors, and on the values of those whose values are known.

    Args:
        run: runs an operation on fake tensors.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._spoiled: set[int] = set()

    def run(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], key: Any, tensors: list[torch.Tensor]
    ) -> Any:
        """Run an operation; `key` and `tensors` are those of its arguments."""
        if tensors:
            for tensor in tensors:
                if _VALUE not in tensor.__dict__:
                    if len(tensors) > 1 and any(_VALUE in other.__dict__ for other in tensors):
                        self._spoil(func, args)
                    return self._run(func, args, kwargs, key, tensors)
            if any(tensor.untyped_storage()._cdata in self._spoiled for tensor in tensors):  # noqa: SLF001  # the storage's address
                return self._run(func, args, kwargs, key, tensors)
            if func is _ITEM:
                value = read(tensors[0])
                with no_dispatch():
                    return value.item()
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
        whole = all(not fake.dtype.is_floating_point and not fake.dtype.is_complex for fake in fakes)
        if not (fakes and small and whole and func.namespace == "aten" and _UNTOLD.isdisjoint(func.tags)):
            self._spoil(func, args)
            return
        with no_dispatch():
            real_args, real_kwargs = tree_map(_value, (args, kwargs))
            real = func(*real_args, **real_kwargs)
        for fake, value in zip(
            fakes, (leaf for leaf in tree_leaves(real) if isinstance(leaf, torch.Tensor)), strict=True
        ):
            fake.__dict__[_VALUE] = value

    def _spoil(self, func: Any, args: tuple[Any, ...]) -> None:
        """What is written in place from unknown values is unknown, as is everything that shares its memory."""
        schema = getattr(func, "_schema", None)  # a higher-order operation has none, and writes nothing
        for argument, value in zip(schema.arguments if schema else (), args, strict=False):
            if argument.is_write and isinstance(value, torch.Tensor) and _VALUE in value.__dict__:
                self._spoiled.add(value.untyped_storage()._cdata)  # noqa: SLF001  # the storage's address


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


def _value(leaf: Any) -> Any:
    return leaf.__dict__[_VALUE] if isinstance(leaf, FakeTensor) else leaf


@contextlib.contextmanager
def asked_as_if_real() -> Iterator[None]:
    """Let transformers and numpy ask fake tensors whose values are known what they ask real ones."""
    module: Any = sys.modules.get("transformers.utils.import_utils")
    original = getattr(module, "is_fake_tensor", None)
    if module is not None:
        module.is_fake_tensor = lambda x: bool(original and original(x)) and _VALUE not in x.__dict__
    outer = FakeTensor.__dict__.get("numpy")  # of a trace around this one
    FakeTensor.numpy = _numpy  # type: ignore[assignment,method-assign]  # torch.Tensor's is the one underneath
    try:
        yield
    finally:
        del FakeTensor.numpy
        if outer is not None:
            FakeTensor.numpy = outer  # type: ignore[method-assign]  # as above
        if module is not None:
            module.is_fake_tensor = original


def _numpy(fake: FakeTensor, **options: Any) -> Any:
    """`Tensor.numpy`: an array of its own, which torch's would share with the tensor."""
    seen = fake.view(fake.shape)  # which knows no value where something unknown was written
    if _VALUE not in seen.__dict__:
        return torch.Tensor.numpy(fake, **options)
    value = read(seen)
    with no_dispatch():
        return value.numpy()
