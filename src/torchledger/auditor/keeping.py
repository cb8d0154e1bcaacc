"""`kept`: everything about a model, an optimizer and a batch that a step can change, remembered and put back."""

from __future__ import annotations

import random
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_hooks
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim import optimizer as optimizer_hooks

from torchledger.auditor.errors import AuditError

PutBack: TypeAlias = Callable[[], None]

# Containers that are emptied and filled again. A subclass may forbid that, or do something as it is filled.
_CONTAINERS = (dict, OrderedDict, defaultdict, list, set, deque)
_PLAIN = (Tensor, nn.Parameter, nn.Buffer)


def kept(*roots: Any) -> list[PutBack]:
    """What puts everything reached from these back, bit for bit, in this order.

    Reached are the attributes of modules and optimizers, through dicts, lists, sets, deques and tuples: weights and
    buffers (in place: tied stays tied; moved or cast data comes back too), plain tensors, their gradients, hooks and
    `requires_grad`, training modes, submodules, counters, caches, an optimizer's state, groups and hooks, and private
    random generators of torch, NumPy and Python. Also the hooks that hang on all modules and all optimizers. Not
    reached are attributes of other objects (a dataset, a configuration).

    Args:
        roots: modules, optimizers, tensors, and containers and mappings of them.

    Raises:
        AuditError: a lazy module has no weights yet.
    """
    keeper = _Keeper()
    for root in roots:
        keeper.keep(root)
    for place in (module_hooks, optimizer_hooks):
        for name, value in vars(place).items():
            if name.startswith("_global_") and isinstance(value, dict):
                keeper.keep(value)
    return keeper.put_back


class _Keeper:
    """Walks over what is reached, each object once."""

    def __init__(self) -> None:
        self.put_back: list[PutBack] = []
        # Held while we walk, so that no number of an object is given to another.
        self._met: dict[int, Any] = {}

    def keep(self, value: Any) -> None:
        """Remember a value and what is reached from it."""
        waiting = [value]
        while waiting:
            each = waiting.pop()
            if isinstance(each, (str, bytes, int, float, type(None))) or id(each) in self._met:
                continue
            self._met[id(each)] = each
            waiting.extend(self._one(each))

    def _one(self, value: Any) -> list[Any]:
        """Remember one object; what else is reached from it."""
        if isinstance(value, Tensor):
            self.put_back.append(_tensor(value))
            return [value.grad] if value.is_leaf and value.grad is not None else []
        if isinstance(value, (nn.Module, Optimizer)):
            self.put_back.append(_attributes(value))
            return list(vars(value).values())
        if type(value) in _CONTAINERS:
            self.put_back.append(_container(value))
        elif (restore := _generator(value)) is not None:
            self.put_back.append(restore)
        if isinstance(value, Mapping):
            return [*value.keys(), *value.values()]
        return list(value) if isinstance(value, (list, tuple, set, frozenset, deque)) else []


def _attributes(thing: Any) -> PutBack:
    """The attributes of a module or an optimizer, submodules and hooks among them, and its class (parametrizations)."""
    kind, before = type(thing), dict(vars(thing))

    def put_back() -> None:
        if type(thing) is not kind:
            thing.__class__ = kind
        now = vars(thing)
        if not _same_items(now, before):
            now.clear()
            now.update(before)

    return put_back


def _container(container: Any) -> PutBack:
    before = container.copy()

    def put_back() -> None:
        if isinstance(container, dict):
            if not _same_items(container, before):
                container.clear()
                container.update(before)
        elif len(container) != len(before) or any(a is not b for a, b in zip(container, before, strict=True)):
            container.clear()
            (container.update if isinstance(container, set) else container.extend)(before)

    return put_back


def _same_items(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> bool:
    """Whether the very same objects stand there in the same order."""
    return len(one) == len(other) and all(
        a is c and b is d for (a, b), (c, d) in zip(one.items(), other.items(), strict=True)
    )


def _generator(value: Any) -> PutBack | None:
    """A random generator's state."""
    numpy = sys.modules.get("numpy")
    if isinstance(value, torch.Generator):
        state = value.get_state()
        return lambda: (value.set_state(state), None)[1]
    if isinstance(value, random.Random):
        told = value.getstate()
        return lambda: value.setstate(told)
    if numpy is not None and isinstance(value, numpy.random.Generator):
        bits = value.bit_generator
        before = bits.state
        return lambda: setattr(bits, "state", before)
    if numpy is not None and isinstance(value, numpy.random.RandomState):
        drawn = value.get_state()
        return lambda: value.set_state(drawn)
    return None


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor as it was.

    Attributes:
        tensor: the object that others hold.
        data: an alias of its memory, which finds back where the data was moved or cast.
        value: a copy of what was there.
        wanted: whether it wants a gradient.
        gradient: the tensor that held it.
        version: how often autograd saw it written; a graph from before stays usable.
        hooks: what hangs on it: of the backward pass, and after its gradient is there.
    """

    tensor: Tensor
    data: Tensor
    value: Tensor
    wanted: bool
    gradient: Tensor | None
    version: int | None
    hooks: tuple[dict[Any, Any], dict[Any, Any]]

    def put_back(self) -> None:
        """As it was, bit for bit."""
        tensor, data = self.tensor, self.data
        now = tensor.detach()
        if (now.dtype, now.shape, now.stride(), now.data_ptr()) != (
            data.dtype, data.shape, data.stride(), data.data_ptr(),
        ):  # fmt: skip
            tensor.data = data
        if not _same_bits(_written_once(data), self.value):  # what nobody changed may be read-only: a mapped file
            with torch.no_grad():
                _written_once(data).copy_(self.value)
        if tensor.is_leaf:
            if tensor.requires_grad != self.wanted:
                tensor.requires_grad_(self.wanted)
            if tensor.grad is not self.gradient:
                tensor.grad = self.gradient
        if self.version is not None and tensor._version != self.version:  # noqa: SLF001  # autograd's own name
            torch._C._autograd._unsafe_set_version_counter((tensor,), (self.version,))  # noqa: SLF001  # no public door
        for hooks, before in zip(_hooks(tensor), self.hooks, strict=True):
            if hooks is not None and not _same_items(hooks, before):
                hooks.clear()
                hooks.update(before)


def _tensor(tensor: Tensor) -> PutBack:
    if is_lazy(tensor):
        raise AuditError("a lazy module has no weights yet: run the model once on a batch, then audit it")
    data = tensor.data
    value = _written_once(data).clone(memory_format=torch.preserve_format)
    version = None if tensor.is_inference() else tensor._version  # noqa: SLF001  # autograd's own name
    first, second = ({} if hooks is None else dict(hooks) for hooks in _hooks(tensor))
    gradient = tensor.grad if tensor.is_leaf else None
    return _Tensor(tensor, data, value, tensor.requires_grad, gradient, version, (first, second)).put_back


def _hooks(tensor: Tensor) -> tuple[Any, Any]:
    return tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None)  # noqa: SLF001  # torch's own names


def _same_bits(one: Tensor, other: Tensor) -> bool:
    if type(one) not in _PLAIN or one.layout is not torch.strided or one.is_quantized:
        return False
    if one.is_meta:
        return True
    return torch.equal(_bits(one), _bits(other))


def _bits(tensor: Tensor) -> Tensor:
    plain = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[plain.element_size()]
    return plain.resolve_neg().view(integer)


def _written_once(tensor: Tensor) -> Tensor:
    """The part of an expanded tensor that has memory of its own: torch refuses to write an element twice."""
    if type(tensor) in _PLAIN and tensor.layout is torch.strided:
        for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
            if stride == 0 and size > 1:
                tensor = tensor.narrow(dim, 0, 1)
    return tensor
