"""A folded run's layers: four and the last run, the others hand on what they are given."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from torchledger.tracer.folding.equal import MAX_PERIOD, Plan, Run

if TYPE_CHECKING:
    from torchledger.tracer.folding.folds import Folds
    from torchledger.tracer.signature import Signature

_MARK = "_torchledger_folded"


class Unfoldable(Exception):  # no error: the step is traced in full instead
    """Layers that looked equal do not run alike, or what they make is used elsewhere.

    Attributes:
        path: path of their list.
        plan: by which they may be folded, `None` where none is known.
    """

    def __init__(self, path: str, reason: str, plan: Plan | None = None) -> None:
        self.path = path
        self.plan = plan
        super().__init__(f"`{path}` is traced in full: {reason}")


def _watched_class(cls: type[nn.Module]) -> type[nn.Module]:
    """The class with a call of its own; the same in name, so that whoever looks at that sees what was there."""

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        run, number = self.__dict__[_MARK]
        return run.called(number, functools.partial(cls.__call__, self), args, kwargs)

    names = {"__call__": call, "__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls,), names)


def watch(run: Run, left_out: LeftOut) -> None:
    """Let the run's layers be called through `left_out`."""
    classes = {cls: _watched_class(cls) for cls in {type(layer) for layer in run.layers}}
    for number, layer in enumerate(run.layers):
        layer.__dict__[_MARK] = (left_out, number)
        layer.__class__ = classes[type(layer)]


def is_watched(run: Run) -> bool:
    """Whether the run's layers belong to another run already."""
    return any(_MARK in layer.__dict__ for layer in run.layers)


def restore(layers: Iterable[nn.Module]) -> None:
    """Give them their classes back."""
    for layer in layers:
        layer.__class__ = type(layer).__mro__[1]
        del layer.__dict__[_MARK]


@dataclass(frozen=True, slots=True)
class _Carried:
    """A tensor of a layer's output that the next layers hand on: number of the tensor argument that it is."""

    argument: int


@dataclass(frozen=True, slots=True)
class _Other:
    """A tensor of a layer's output that goes elsewhere: that of the layer before, if it lives."""

    tensor: weakref.ref[torch.Tensor]


class LeftOut:
    """Calls of one run's layers."""

    def __init__(self, run: Run, folds: Folds, number: int) -> None:
        self._run = run
        self._folds = folds
        self._number = number
        self._next = 0
        self._arguments: dict[int, list[Any]] = {}
        self._differ = False
        self._between: dict[int, list[tuple[Any, ...]]] = {}
        self._outputs: dict[int, Any] = {}
        self._last: list[weakref.ref[torch.Tensor]] = []
        self._left_at = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> LeftOut:
        return self  # a layer's copy is no part of the run: it is noticed when it is called

    def called(self, number: int, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A layer is called: run it, or leave it out."""
        run, folds = self._run, self._folds
        unit, position = divmod(number, run.period)
        if torch._C._current_graph_task_id() != -1:  # noqa: SLF001  # recomputed in a backward pass; no public door
            return call(*args, **kwargs) if run.is_run(unit) else self._handed_on(position, (args, kwargs))
        if number == 0 and self._next in {0, len(run.layers)}:
            folds.begins(self._number)
        elif number != self._next:
            raise folds.fail(self._number, "its layers do not run one after the other")
        folds.settle()
        self._next = number + 1
        self._arguments[number] = list(_described((args, kwargs)))
        if run.is_run(unit):
            is_next = unit == run.plan.num_first - 1
            if is_next:
                self._between[position] = self._signatures()
            output = call(*args, **kwargs)
            if is_next:
                self._learn(position, (args, kwargs), output)
            self._last = [weakref.ref(tensor) for tensor in _tensors(output)] if unit < run.plan.num_first else []
        else:
            self._check(number, position)
            output = self._handed_on(position, (args, kwargs))
        if position == run.period - 1:
            folds.left(self._number, unit)
        self._left_at = len(folds.recorder.calls)
        if self._next == len(run.layers):
            self._end()
        return output

    def _signatures(self) -> list[tuple[Any, ...]]:
        """Operations since the last layer was left; which of their operands share storage is left out."""
        return [_unaliased(call.signature) for call in self._folds.recorder.calls[self._left_at :]]

    def _learn(self, position: int, arguments: Any, output: Any) -> None:
        """Find out which arguments a layer's outputs take the place of."""
        given = list(_tensors(arguments))
        last = [reference() for reference in self._last]
        carried: list[_Carried | None] = []
        for number, tensor in enumerate(_tensors(output)):
            before = last[number] if number < len(last) else None
            found = next((i for i, g in enumerate(given) if g is tensor or (before is not None and g is before)), None)
            if found is None and number == 0:
                found = next((i for i, g in enumerate(given) if _meta(g)[:4] == _meta(tensor)[:4]), None)
            carried.append(None if found is None else _Carried(found))
        if not carried or carried[0] is None:
            raise self._folds.fail(self._number, "a layer's output does not fit the next layer's input")
        numbers = iter(carried)
        self._outputs[position] = _filled(output, lambda tensor: next(numbers) or _Other(weakref.ref(tensor)))
        if self._outputs[position] is NotImplemented:
            raise self._folds.fail(self._number, f"a layer returns {type(output).__name__}")

    def _check(self, number: int, position: int) -> None:
        """Whether a layer that is left out is called as the one before it was."""
        if not self._alike(number, (self._run.plan.num_first - 1) * self._run.period + position):
            self._differ = True  # all are looked at before it fails: a longer period may do
        if self._between[position] != self._signatures():
            raise self._folds.fail(self._number, "different operations run between its layers")

    def _alike(self, number: int, other: int) -> bool:
        """Whether two layers are called alike."""
        a, b = self._arguments[other], self._arguments[number]
        return len(a) == len(b) and all(_alike(x, y, number - other) for x, y in zip(a, b, strict=True))

    def _end(self) -> None:
        """The last layer was called."""
        if self._differ:
            num, least = len(self._arguments), self._run.period + 1
            period = next(
                (p for p in range(least, MAX_PERIOD + 1) if all(self._alike(n, n - p) for n in range(p, num))), 0
            )
            plan = Plan(period) if period else None
            raise self._folds.fail(self._number, "its layers are called with different arguments", plan)
        self._arguments.clear()

    def _handed_on(self, position: int, arguments: Any) -> Any:
        given = list(_tensors(arguments))

        def fill(value: Any) -> Any:
            return given[value.argument] if isinstance(value, _Carried) else value.tensor()

        return _filled(self._outputs[position], fill)


def _filled(value: Any, fill: Callable[[Any], Any]) -> Any:
    """The value with every tensor (or what stands for one) replaced; `NotImplemented` where it cannot be made anew."""
    if isinstance(value, (torch.Tensor, _Carried, _Other)):
        return fill(value)
    if type(value) in {tuple, list}:
        items = [_filled(item, fill) for item in value]
        return NotImplemented if any(item is NotImplemented for item in items) else type(value)(items)
    if type(value) is dict:
        named = {key: _filled(item, fill) for key, item in value.items()}
        return NotImplemented if any(item is NotImplemented for item in named.values()) else named
    return value if value is None or isinstance(value, (int, float, str)) else NotImplemented


def _unaliased(signature: Signature) -> tuple[Any, ...]:
    args, kwargs = signature.arguments(lambda meta: (meta.shape, meta.stride, meta.dtype))
    return signature.op, args, kwargs, signature.number_types


def _described(value: Any) -> Iterator[Any]:
    """Arguments as a flat list: tensors by their geometry, containers by type and items, objects by themselves."""
    if isinstance(value, torch.Tensor):
        yield _meta(value)
    elif isinstance(value, (tuple, list)):
        yield (type(value), len(value))
        for item in value:
            yield from _described(item)
    elif isinstance(value, Mapping):
        yield (type(value), tuple(value))
        for item in value.values():
            yield from _described(item)
    elif is_dataclass(value) and not isinstance(value, type):
        yield (type(value),)
        for field in fields(value):
            yield from _described(getattr(value, field.name))
    else:
        yield value


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _tensors(getattr(value, field.name))


def _meta(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (torch.Tensor, tuple(tensor.shape), tensor.dtype, tensor.requires_grad, tensor.stride())


def _alike(a: Any, b: Any, apart: int) -> bool:
    """Whether two arguments are equal, or whole numbers as far apart as their layers."""
    return a is b or (type(a) is type(b) and (a == b or (type(a) is int and b - a == apart)))
