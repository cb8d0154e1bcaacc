"""A copy of the Python objects that a step works on, its tensors fake: the user's own are never touched.

`copy.deepcopy` gives up at the first object that cannot be copied (a lock, a file, a logger's handler) and takes
functions as they are, with the user's model in their closures. Here an object that cannot be copied is shared, and
what functions reach is replaced by its copy while the step runs.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from torchledger.tracer.errors import TraceError
from torchledger.tracer.fake import Fakes

T = TypeVar("T")

# Shared as they are: immutable, or classes, modules and code.
_ATOMS = (
    type(None), bool, int, float, complex, str, bytes, range, slice, type, type(...), type(NotImplemented),
    types.ModuleType, types.BuiltinFunctionType, types.CodeType, property, torch.dtype, torch.device, torch.layout,
    torch.memory_format, torch._ops.OpOverload, torch._ops.OpOverloadPacket,  # noqa: SLF001  # torch's operations have no public class
)  # fmt: skip
# Machinery of torch that holds no user's tensors, and much that cannot be copied.
_SHARED_PACKAGES = ("torch._dynamo", "torch._inductor", "torch.fx", "torch._C", "logging", "threading", "weakref")


class Copies:
    """Deep copies whose tensors are fake; one object has one copy, so tied stays tied.

    Args:
        fakes: makes the fakes of tensors.
        on_function: told every Python function that the copied objects hold.
        on_object: told the class of every object that is copied.

    Attributes:
        modules: the modules that were copied, in order: originals and copies.
        tensors: the fakes of tensors that stand alone, outside modules and optimizers.
    """

    def __init__(
        self,
        fakes: Fakes,
        *,
        on_function: Callable[[types.FunctionType], None] = lambda _: None,
        on_object: Callable[[type], None] = lambda _: None,
    ) -> None:
        self.modules: list[tuple[nn.Module, nn.Module]] = []
        self.tensors: list[torch.Tensor] = []
        self._fakes = fakes
        self._on_function = on_function
        self._on_object = on_object
        self._inside = 0
        self._in_optimizer = 0
        self._alive: list[Any] = []  # an id is an object's only as long as it lives

    def of(self, thing: T) -> T:
        """The copy of anything.

        Raises:
            TraceError: a generator, which a trace would use up; a scripted module.
        """
        copied: T = self._of(thing)
        return copied

    def _of(self, thing: Any) -> Any:
        memo = self._fakes.memo
        if id(thing) in memo:
            return memo[id(thing)]
        if isinstance(thing, _ATOMS):
            return thing
        copied = self._copied(thing)
        memo[id(thing)] = copied
        self._alive.append(thing)
        return copied

    def _copied(self, thing: Any) -> Any:
        if isinstance(thing, torch.Tensor):
            return self._tensor(thing)
        if isinstance(thing, types.FunctionType):
            self._on_function(thing)
            return thing
        if isinstance(thing, types.MethodType):
            self._on_function(thing.__func__) if isinstance(thing.__func__, types.FunctionType) else None
            return types.MethodType(thing.__func__, self._of(thing.__self__))
        if isinstance(thing, functools.partial):
            return self._partial(thing)
        if isinstance(thing, types.GeneratorType):
            raise TraceError(
                f"the step draws from the generator `{thing.__name__}`, which a trace would use up",
                remedy="Draw one batch before, and let the step use that",
            )
        if isinstance(thing, torch.Generator):
            return thing.clone_state() if thing.device.type == "cpu" else torch.Generator()  # where the fakes stand
        return self._container(thing)

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        fake = self._fakes.known(tensor) if self._in_optimizer else self._fakes.tensor(tensor)
        self._fakes.memo[id(tensor)] = fake
        if not self._inside and not isinstance(tensor, nn.Parameter):
            self.tensors.append(fake)
        for hook in (tensor._backward_hooks or {}).values():  # noqa: SLF001  # a tensor's hooks have no public door
            fake.register_hook(self._of(hook))  # type: ignore[no-untyped-call]  # torch's method has no types
        for hook in (getattr(tensor, "_post_accumulate_grad_hooks", None) or {}).values():
            fake.register_post_accumulate_grad_hook(self._of(hook))  # type: ignore[no-untyped-call]  # as above
        return fake

    def _partial(self, thing: functools.partial[Any]) -> functools.partial[Any]:
        keywords = {name: self._of(value) for name, value in thing.keywords.items()}
        return functools.partial(self._of(thing.func), *[self._of(value) for value in thing.args], **keywords)

    def _container(self, thing: Any) -> Any:
        cls = type(thing)
        if cls is tuple:
            items = [self._of(item) for item in thing]
            return thing if all(one is other for one, other in zip(items, thing, strict=True)) else tuple(items)
        if cls is list:
            copied: Any = []
            self._fakes.memo[id(thing)] = copied
            copied.extend(self._of(item) for item in thing)
            return copied
        if cls is dict:
            copied = self._fakes.memo[id(thing)] = {}
            for key, value in thing.items():
                copied[self._of(key)] = self._of(value)
            return copied
        return self._object(thing)

    def _object(self, thing: Any) -> Any:
        if isinstance(thing, torch.jit.ScriptModule):  # its copy holds the same parameters: gradients would land there
            raise TraceError(
                f"a scripted module ({thing.original_name}) cannot be traced",
                remedy="Take the module that it was made of",
            )
        if _is_shared(type(thing)):
            return thing
        self._on_object(type(thing))
        owns_tensors = isinstance(thing, (nn.Module, Optimizer))
        self._inside += owns_tensors
        self._in_optimizer += isinstance(thing, Optimizer)
        try:
            own_copier = getattr(thing, "__deepcopy__", None)
            if own_copier is not None:
                with self._fakes.copying():
                    copied = own_copier(self._fakes.memo)
            else:
                copied = self._rebuilt(thing)
        finally:
            self._inside -= owns_tensors
            self._in_optimizer -= isinstance(thing, Optimizer)
        if isinstance(thing, nn.Module) and copied is not thing:
            self.modules.append((thing, copied))
        return copied

    def _rebuilt(self, thing: Any) -> Any:
        """An object anew, as `copy.deepcopy` does it by its `__reduce_ex__`; itself where it cannot be."""
        try:
            reduced = thing.__reduce_ex__(4)
        except (TypeError, AttributeError, RuntimeError, ValueError):
            return thing  # a lock, a file, a socket: nothing that a step could change
        if isinstance(reduced, str):
            return thing
        make, args, state, items, pairs = (*reduced, None, None, None)[:5]
        copied = make(*[self._of(arg) for arg in args])
        self._fakes.memo[id(thing)] = copied
        if state is not None:
            self._set_state(copied, self._of(state))
        for item in items or ():
            copied.append(self._of(item))
        for key, value in pairs or ():
            copied[self._of(key)] = self._of(value)
        return copied

    @staticmethod
    def _set_state(copied: Any, state: Any) -> None:
        if hasattr(copied, "__setstate__"):
            copied.__setstate__(state)
            return
        state, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
        if state:
            copied.__dict__.update(state)
        for name, value in (slots or {}).items():
            setattr(copied, name, value)


def _is_shared(cls: type) -> bool:
    """Machinery, and a file that is mapped into memory as an array: its copy would be read from disk in full."""
    machinery = (cls.__module__ or "").startswith(_SHARED_PACKAGES) and not issubclass(cls, nn.Module)
    return machinery or cls.__name__ == "memmap"
