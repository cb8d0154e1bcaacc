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
                with no_dispatch():
                    return tensors[0].__dict__[_VALUE].item()
        elif func.namespace != "aten" or func.name().removeprefix("aten::").partition(".")[0] not in _MADE_OF_NUMBERS:
            return self._run(func, args, kwargs, key, tensors)
        result = self._run(func, args, kwargs, key, tensors)
        self._tell(func, args, kwargs, result)
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
        for argument, value in zip(func._schema.arguments, args, strict=False):  # noqa: SLF001  # torch's only way to a schema
            if argument.is_write and isinstance(value, torch.Tensor) and _VALUE in value.__dict__:
                self._spoiled.add(value.untyped_storage()._cdata)  # noqa: SLF001  # the storage's address


def _value(leaf: Any) -> Any:
    return leaf.__dict__[_VALUE] if isinstance(leaf, FakeTensor) else leaf


@contextlib.contextmanager
def asked_as_if_real() -> Iterator[None]:
    """Let transformers ask fake tensors whose values are known what it asks real ones."""
    module: Any = sys.modules.get("transformers.utils.import_utils")
    if module is None:
        yield
        return
    original = module.is_fake_tensor
    module.is_fake_tensor = lambda x: bool(original(x)) and _VALUE not in x.__dict__
    try:
        yield
    finally:
        module.is_fake_tensor = original
