"""Which layers of a model are equal: runs of siblings that differ in their number alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from torchledger.tracer.values import known_alike

#: Folding saves next to nothing where fewer units than this are left out.
MIN_LEFT_OUT = 2
#: Longest pattern of unequal layers that repeats (five with a window and one without: 6).
MAX_PERIOD = 8

# What `nn.Module` keeps in an instance beside the user's own attributes. `training` is the user's.
_OWN = frozenset(nn.Module().__dict__) - {"training"}
_HOOKS = tuple(name for name in nn.Module().__dict__ if name.endswith("_hooks"))
_PLAIN = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device, torch.layout)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a list of layers is folded.

    Attributes:
        period: how many layers make a unit; 0 is the smallest that repeats.
        num_first: how many units are run at the beginning. Of the first four, two are compared, and one stands on
            either side.
        num_last: how many units are run at the end.
    """

    period: int = 0
    num_first: int = 4
    num_last: int = 1

    @property
    def wider(self) -> Plan | None:
        """The plan to try where this one does not do: what happens at both ends may reach a unit further."""
        return replace(self, num_first=5, num_last=2) if self.num_first < 5 else None


@dataclass(frozen=True, slots=True)
class Run:
    """Equal units of layers that follow one another in a list of modules.

    Attributes:
        path: path of the list.
        names: name of each layer in it, in order.
        layers: the layers.
        plan: how many layers a unit has, and which units are run.
        is_numbered: whether the layers know their own number.
    """

    path: str
    names: tuple[str, ...]
    layers: tuple[nn.Module, ...]
    plan: Plan
    is_numbered: bool

    @property
    def period(self) -> int:
        """Layers in a unit; the units are equal, not the layers in one."""
        return self.plan.period

    @property
    def template(self) -> int:
        """The unit that those that are left out are like."""
        return self.plan.num_first - 2

    @property
    def left_out(self) -> range:
        """Units that are not run."""
        return range(self.plan.num_first, self.num_units - self.plan.num_last)

    def steps(self, home: int, there: int) -> int:
        """How many units lie between two of those that are run, where those that are not are not there."""
        return self._place(there) - self._place(home)

    def _place(self, unit: int) -> int:
        return unit if unit < self.plan.num_first else unit - len(self.left_out)

    @property
    def num_units(self) -> int:
        """Units in it."""
        return len(self.layers) // self.period

    def is_run(self, unit: int) -> bool:
        """Whether a unit is run; the others are counted."""
        return unit not in self.left_out

    def prefixes(self, unit: int) -> tuple[str, ...]:
        """Paths of a unit's layers."""
        start = unit * self.period
        return tuple(f"{self.path}.{name}".lstrip(".") for name in self.names[start : start + self.period])

    def parameters(self, unit: int) -> list[nn.Parameter]:
        """Parameters of a unit's layers, in order."""
        start = unit * self.period
        return [p for layer in self.layers[start : start + self.period] for p in layer.parameters()]


def runs_of(root: nn.Module, plans: Mapping[str, Plan | None] | None = None, prefix: str = "") -> list[Run]:
    """Runs of equal units among the lists of modules in a model, none inside another's layers.

    Args:
        root: the model.
        plans: for the path of a list how it is folded, where that is known; `None` leaves it alone.
        prefix: what paths begin with.
    """
    found: list[Run] = []
    shared = _shared(root)
    _search(root, prefix, plans or {}, shared, found)
    return found


def _search(module: nn.Module, path: str, plans: Mapping[str, Plan | None], shared: set[int], found: list[Run]) -> None:
    taken: set[str] = set()
    if isinstance(module, (nn.ModuleList, nn.Sequential)):
        plan = plans.get(path, Plan())
        run = None if plan is None else _run(module, path, shared, plan)
        if run is not None:
            found.append(run)
            taken.update(run.names)
    for name, child in module.named_children():
        if name not in taken:
            _search(child, path if name == "_orig_mod" else f"{path}.{name}".lstrip("."), plans, shared, found)


def _run(container: nn.Module, path: str, shared: set[int], plan: Plan) -> Run | None:
    """The longest run in one list."""
    names, layers = list(container._modules), list(container._modules.values())  # noqa: SLF001  # a module twice is listed twice
    least = plan.num_first + plan.num_last + MIN_LEFT_OUT
    if len(layers) < least or any(layer is None for layer in layers):
        return None
    classes, numbered = _classes([layer for layer in layers if layer is not None], shared)
    for period in (plan.period,) if plan.period else range(1, MAX_PERIOD + 1):
        start, length = _longest(classes, period)
        if length // period >= least:
            end = start + length // period * period
            chosen = [layer for layer in layers[start:end] if layer is not None]
            return Run(
                path, tuple(names[start:end]), tuple(chosen), replace(plan, period=period), any(numbered[start:end])
            )
    return None


def _longest(classes: list[int], period: int) -> tuple[int, int]:
    """Start and length of the longest stretch that repeats after `period`; -1 equals nothing."""
    best, start = (0, 0), 0
    while start < len(classes):
        end = start
        while (
            end < len(classes) and classes[end] >= 0 and (end < start + period or classes[end] == classes[end - period])
        ):
            end += 1
        best = max(best, (start, end - start), key=lambda stretch: stretch[1])
        start = max(end - period + 1, start + 1)
    return best


def _classes(layers: list[nn.Module], shared: set[int]) -> tuple[list[int], list[bool]]:
    """The class of equals of each layer, -1 where it cannot be folded; and whether it knows its number."""
    representatives: list[tuple[int, nn.Module]] = []
    classes: list[int] = []
    numbered: list[bool] = []
    for number, layer in enumerate(layers):
        equals = _Equality(0, number)
        if not _is_foldable(layer, shared):
            classes.append(-1)
            numbered.append(False)
            continue
        for which, (first, representative) in enumerate(representatives):
            equals = _Equality(first, number)
            if equals.modules(representative, layer):
                classes.append(which)
                break
        else:
            classes.append(len(representatives))
            representatives.append((number, layer))
            equals.is_numbered = False
        numbered.append(equals.is_numbered)
    return classes, numbered


def _shared(root: nn.Module) -> set[int]:
    """Modules, parameters and buffers that stand in a model more than once."""
    seen: set[int] = set()
    twice: set[int] = set()
    for module in _every(root):
        for owned in (module, *module._parameters.values(), *module._buffers.values()):  # noqa: SLF001  # torch's own listing leaves repetitions out
            if owned is not None:
                (twice if id(owned) in seen else seen).add(id(owned))
    return twice


def _every(module: nn.Module) -> Iterator[nn.Module]:
    yield module
    for child in module._modules.values():  # noqa: SLF001  # as above
        if child is not None:
            yield from _every(child)


def _is_foldable(layer: nn.Module, shared: set[int]) -> bool:
    """Whether the layer owns all that is in it, and nothing is hooked to it."""
    for module in layer.modules():
        if id(module) in shared or any(getattr(module, name, None) for name in _HOOKS):
            return False
        if "forward" in module.__dict__ or "_torchdynamo_orig_callable" in module.__dict__:
            return False  # a forward of this one's own
        for tensor in (*module._parameters.values(), *module._buffers.values()):  # noqa: SLF001  # with those that are None
            if tensor is None:
                continue
            if id(tensor) in shared or tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None):  # noqa: SLF001  # hooks have no public door
                return False
    return True


class _Equality:
    """Compares two layers, the number that each may know itself by left out."""

    def __init__(self, first: int, second: int) -> None:
        self.is_numbered = False
        self._apart = second - first
        self._pairs: set[tuple[int, int]] = set()

    def modules(self, a: nn.Module, b: nn.Module) -> bool:
        """Whether two modules are equal but for the values of their tensors that a trace does not know."""
        if a is b:
            return True
        if type(a) is not type(b) or list(a._modules) != list(b._modules):  # noqa: SLF001  # with those that are None
            return False
        if (id(a), id(b)) in self._pairs:
            return True
        self._pairs.add((id(a), id(b)))
        for tensors_a, tensors_b in ((a._parameters, b._parameters), (a._buffers, b._buffers)):  # noqa: SLF001  # as above
            if list(tensors_a) != list(tensors_b) or not all(map(_same_tensor, tensors_a.values(), tensors_b.values())):
                return False
        return self._attributes(a.__dict__, b.__dict__) and all(
            (x is None and y is None) or (x is not None and y is not None and self.modules(x, y))
            for x, y in zip(a._modules.values(), b._modules.values(), strict=True)  # noqa: SLF001  # as above
        )

    def _attributes(self, a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
        names = a.keys() - _OWN
        return names == b.keys() - _OWN and all(self.values(a[name], b[name]) for name in names)

    def values(self, a: Any, b: Any) -> bool:
        """Whether two attributes are equal; whole numbers may be as far apart as the layers."""
        if a is b:
            return True
        if type(a) is not type(b):
            return False
        if isinstance(a, _PLAIN):
            if type(a) is int and a != b and b - a == self._apart:
                self.is_numbered = True
                return True
            return bool(a == b)
        if isinstance(a, nn.Module):
            return self.modules(a, b)
        if isinstance(a, torch.Tensor):
            return False
        if isinstance(a, partial):
            return self.values((a.func, a.args, a.keywords), (b.func, b.args, b.keywords))
        if isinstance(a, (list, tuple)):
            return len(a) == len(b) and all(map(self.values, a, b))
        if isinstance(a, Mapping):
            return list(a) == list(b) and all(map(self.values, a.values(), b.values()))
        return self._objects(a, b)

    def _objects(self, a: Any, b: Any) -> bool:
        if callable(a) and not hasattr(a, "__dict__"):
            return bool(a == b)
        if (id(a), id(b)) in self._pairs:
            return True
        self._pairs.add((id(a), id(b)))
        if getattr(a, "__dict__", None):
            return self._attributes(vars(a), vars(b))
        return bool(a == b)


def _same_tensor(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return (
        type(a) is type(b)
        and a.shape == b.shape
        and a.dtype is b.dtype
        and a.requires_grad is b.requires_grad
        and a.layout is torch.strided
        and b.layout is torch.strided
        and a.stride() == b.stride()
        and a.device == b.device
        and (a.grad is None) is (b.grad is None)
        and known_alike(a, b)
    )
