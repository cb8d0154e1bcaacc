"""`torch.autocast` as CUDA does it, over fake CPU tensors.

The CPU's autocast has lists of its own, and on a build without CUDA `torch.autocast("cuda")` switches itself off. So
while this is on, kernels with CUDA's policies (`autocast.toml`) stand in the dispatcher under the CPU's autocast key,
and whatever asks about CUDA's autocast is told of the CPU's. Python kernels of the dispatcher see every call, those
that C++ composites make (LSTM, einsum, bilinear) as well, which a mode over Python functions would not.
"""

from __future__ import annotations

import contextlib
import functools
import tomllib
import warnings
import weakref
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any, TypeAlias

import torch
from torch.amp import autocast_mode
from torch.library import Library, fallthrough_kernel

Adopt: TypeAlias = Callable[[torch.Tensor], None]
Kernel: TypeAlias = Callable[..., Any]

_KEY = "AutocastCPU"
_NO_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)  # noqa: SLF001  # the dispatcher has no public door
#: Functions of torch about autocast whose first argument is a device type, CUDA's where it is left out.
_OF_A_DEVICE = (
    "is_autocast_enabled", "set_autocast_enabled", "get_autocast_dtype", "set_autocast_dtype",
)  # fmt: skip


@functools.cache
def policies() -> dict[str, tuple[str, ...]]:
    """Names of operations by policy, from the data file."""
    file = resources.files(__package__).joinpath("autocast.toml")
    return {policy: tuple(names) for policy, names in tomllib.loads(file.read_text("utf-8")).items()}


@contextlib.contextmanager
def autocast_of_cuda(adopt: Adopt) -> Iterator[None]:
    """While this is on, autocast for any device is CUDA's.

    Args:
        adopt: is shown every low-precision copy of a weight that autocast keeps until it ends.
    """
    casts = _Casts(adopt)
    library = Library("aten", "IMPL", _KEY)  # type: ignore[no-untyped-call]  # torch's class has no types
    state = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    try:
        _enter_kernels(library, casts)
        with _asked_of_cuda(casts):
            yield
    finally:
        library._destroy()  # type: ignore[no-untyped-call]  # noqa: SLF001  # as torch.library's own scoped library
        torch.set_autocast_enabled("cpu", state[0])
        torch.set_autocast_dtype("cpu", state[1])
        casts.clear()


class _Casts:
    """Casts, and the cache of those of weights (`at::autocast::cached_cast` of aten/src/ATen/autocast_mode.cpp)."""

    def __init__(self, adopt: Adopt, *, keeps: bool = True) -> None:
        self._adopt = adopt
        self._keeps = keeps
        self._kept: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}

    @property
    def uncached(self) -> _Casts:
        """The same without a cache."""
        return _Casts(self._adopt, keeps=False)

    def clear(self) -> None:
        """The outermost autocast has ended."""
        self._kept.clear()

    def cast(self, value: Any, dtype: torch.dtype) -> Any:
        """The value with every floating tensor in it (fp64 apart) as `dtype`."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value, dtype)
        if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
            return [self.cast(item, dtype) for item in value]
        return value

    def _tensor(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if not is_eligible(tensor) or tensor.dtype == dtype:
            return tensor
        is_weight = (
            self._keeps
            and dtype == torch.get_autocast_dtype("cpu")
            and tensor.dtype == torch.float32
            and tensor.requires_grad
            and tensor.is_leaf
            and not tensor._is_view()  # noqa: SLF001  # the only way to ask
            and torch.is_autocast_cache_enabled()
        )
        if not is_weight:
            return tensor.to(dtype)
        reference, kept = self._kept.get(id(tensor), (None, None))
        if kept is not None and reference is not None and reference() is tensor:
            return kept
        made = tensor.to(dtype)
        self._kept[id(tensor)] = weakref.ref(tensor), made
        self._adopt(made)
        return made


def is_eligible(value: Any) -> bool:
    """Whether autocast casts such a value at all."""
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float64


def _enter_kernels(library: Library, casts: _Casts) -> None:
    enter: Callable[..., None] = library.impl
    wanted = {name: policy for policy, names in policies().items() for name in names}
    present = torch._C._dispatch_get_registrations_for_dispatch_key(_KEY)  # noqa: SLF001  # the only list of them
    of_cpu = {name.removeprefix("aten::") for name in present if name.startswith("aten::")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that a kernel is overridden, which is the point
        for name in sorted(of_cpu - wanted.keys()):
            enter(name, fallthrough_kernel, allow_override=True)
        for name, policy in wanted.items():
            enter(name, _KERNELS[policy](_overload(name), casts), allow_override=True)


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _without_autocast() -> Any:
    return torch._C._ExcludeDispatchKeyGuard(_NO_AUTOCAST)  # noqa: SLF001  # what the kernels of C++ do


def _casting(func: Any, casts: _Casts, dtype: Callable[[tuple[Any, ...], dict[str, Any]], torch.dtype]) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _without_autocast():
            to = dtype(args, kwargs)
            return func(
                *[casts.cast(arg, to) for arg in args], **{name: casts.cast(arg, to) for name, arg in kwargs.items()}
            )

    return kernel


def _lower_precision(func: Any, casts: _Casts) -> Kernel:
    return _casting(func, casts, lambda _args, _kwargs: torch.get_autocast_dtype("cpu"))


def _lower_precision_uncached(func: Any, casts: _Casts) -> Kernel:
    return _casting(func, casts.uncached, lambda _args, _kwargs: torch.get_autocast_dtype("cpu"))


def _fp32(func: Any, casts: _Casts) -> Kernel:
    return _casting(func, casts, lambda _args, _kwargs: torch.float32)


def _promote(func: Any, casts: _Casts) -> Kernel:
    return _casting(func, casts, lambda args, kwargs: _widest((*args, *kwargs.values())))


def _widest(values: Any) -> torch.dtype:
    """fp32 if any floating operand (fp64 apart) is, else the autocast dtype: `at::autocast::promote_type`."""
    lower = torch.get_autocast_dtype("cpu")
    widest = lower
    for value in values:
        if isinstance(value, (list, tuple)):
            found = _widest(value)
        elif is_eligible(value):
            found = value.dtype
        else:
            continue
        if torch.float32 in {widest, found}:
            widest = torch.float32
        elif found != lower:
            raise RuntimeError("Unexpected floating ScalarType in at::autocast::prioritize")
    return widest


def _fp32_set_opt_dtype(func: Any, _casts: _Casts) -> Kernel:
    names = [argument.name for argument in func._schema.arguments]  # noqa: SLF001  # torch's only way to a schema
    position = names.index("dtype")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _without_autocast():
            if is_eligible(args[0]):
                if len(args) > position:
                    args = (*args[:position], args[position] or torch.float32, *args[position + 1 :])
                elif kwargs.get("dtype") is None:
                    kwargs = {**kwargs, "dtype": torch.float32}
            return func(*args, **kwargs)

    return kernel


def _fp32_append_dtype(func: Any, _casts: _Casts) -> Kernel:
    # `norm.Scalar` and `norm.ScalarOpt_dim` go to the overloads of the same arguments and a dtype.
    with_dtype = {
        "Scalar": torch.ops.aten.norm.ScalarOpt_dtype,
        "ScalarOpt_dim": torch.ops.aten.norm.ScalarOpt_dim_dtype,
    }
    target: Any = with_dtype[func._overloadname]  # noqa: SLF001  # its name has no public door
    defaults = [argument.default_value for argument in func._schema.arguments]  # noqa: SLF001  # torch's only way to a schema

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _without_autocast():
            dtype = torch.float32 if is_eligible(args[0]) else args[0].dtype
            return target(*args, *defaults[len(args) :], dtype=dtype, **kwargs)

    return kernel


def _banned(func: Any, _casts: _Casts) -> Kernel:
    def kernel(*_args: Any, **_kwargs: Any) -> Any:
        raise RuntimeError(
            f"torch.nn.functional.{func.__name__.partition('.')[0]} and torch.nn.BCELoss are unsafe to autocast; "
            "use binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss"
        )

    return kernel


_KERNELS: dict[str, Callable[[Any, _Casts], Kernel]] = {
    "lower_precision": _lower_precision,
    "lower_precision_uncached": _lower_precision_uncached,
    "fp32": _fp32,
    "fp32_set_opt_dtype": _fp32_set_opt_dtype,
    "fp32_append_dtype": _fp32_append_dtype,
    "promote": _promote,
    "banned": _banned,
}


@contextlib.contextmanager
def _asked_of_cuda(casts: _Casts) -> Iterator[None]:
    """Answer questions about CUDA's autocast with the CPU's, and empty both caches of casts at once."""
    replaced: dict[tuple[Any, str], Any] = {}

    def put(owner: Any, name: str, value: Any) -> None:
        replaced[owner, name] = getattr(owner, name)
        setattr(owner, name, value)

    clear = torch.clear_autocast_cache

    def clear_autocast_cache() -> None:
        casts.clear()
        clear()

    try:
        default = torch.get_autocast_dtype("cuda")
        for name in _OF_A_DEVICE:
            put(torch, name, _of_cpu(getattr(torch, name)))
        if not torch.is_autocast_enabled("cpu"):
            torch.set_autocast_dtype("cpu", default)  # what CUDA's autocast casts to where no dtype is named
        put(torch, "get_autocast_gpu_dtype", lambda: torch.get_autocast_dtype("cpu"))
        put(torch, "set_autocast_gpu_dtype", lambda dtype: torch.set_autocast_dtype("cpu", dtype))
        put(torch, "clear_autocast_cache", clear_autocast_cache)
        put(autocast_mode, "_cast", _of_cpu_second(autocast_mode._cast))  # noqa: SLF001  # custom_fwd's cast
        put(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
        yield
    finally:
        for (owner, name), value in replaced.items():
            setattr(owner, name, value)


def _of_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function asked of the CPU: with CUDA named, or with no device, which means CUDA."""

    def asked(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], str):
            return function("cpu", *args[1:], **kwargs)
        kwargs.pop("device_type", None)
        return function("cpu", *args, **kwargs)

    return asked


def _of_cpu_second(cast: Callable[..., Any]) -> Callable[..., Any]:
    def asked(value: Any, _device_type: str, dtype: torch.dtype) -> Any:
        return cast(value, "cpu", dtype)

    return asked
