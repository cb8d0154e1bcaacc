"""What a step function reaches (closures, globals, defaults, methods' objects), replaced by copies while it runs.

The function itself is run, not a copy of it: its variables are set to copies and set back, whatever happens. So a
counter that it counts up, a list that it appends to and a model that it trains are all as they were.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchledger.tracer.copying import Copies
from torchledger.tracer.fake import Fakes

_MISSING = object()
# What a class may hold that a step changes.
_HELD = (torch.Tensor, nn.Module, torch.optim.Optimizer, list, dict, set)
_LIBRARIES = (
    str(Path(torch.__file__).parent),
    str(Path(__file__).parent),
    sysconfig.get_path("stdlib"),
    sysconfig.get_path("purelib"),
    sysconfig.get_path("platlib"),
    "<frozen",
)


class Reached:
    """The variables that functions reach, and the copies that stand in them.

    Args:
        fakes: makes the fakes of tensors.

    Attributes:
        copies: where every object's copy is found.
    """

    def __init__(self, fakes: Fakes) -> None:
        self.copies = Copies(fakes, on_function=self._function, on_object=self._class)
        self._seen: set[Any] = set()
        self._names: dict[int, str] = {}
        self._cells: list[tuple[types.CellType, Any, Any]] = []
        self._globals: list[tuple[dict[str, Any], str, Any, Any]] = []
        self._attributes: list[tuple[type, str, Any, Any]] = []
        self._defaults: list[tuple[types.FunctionType, tuple[Any, Any], tuple[Any, Any]]] = []

    def roots(self) -> dict[str, nn.Module]:
        """Copies of the models that are no part of another one, by the variable that holds them (or number)."""
        originals = [original for original, _ in self.copies.modules]
        parts = {id(part) for model in originals for part in list(model.modules())[1:]}
        roots: dict[str, nn.Module] = {}
        for original, copied in self.copies.modules:
            if id(original) not in parts:
                name = self._names.get(id(original), "model")
                roots[name if name not in roots else f"{name}{len(roots)}"] = copied
        return roots

    @contextlib.contextmanager
    def swapped(self) -> Iterator[None]:
        """While this is on, the copies stand in the variables."""
        try:
            for cell, _, copied in self._cells:
                cell.cell_contents = copied
            for namespace, name, _, copied in self._globals:
                if copied is not _MISSING:
                    namespace[name] = copied
            for cls, name, _, copied in self._attributes:
                setattr(cls, name, copied)
            for function, _, (defaults, keywords) in self._defaults:
                function.__defaults__, function.__kwdefaults__ = defaults, keywords
            yield
        finally:
            self._put_back()

    def _put_back(self) -> None:
        for cell, original, _ in self._cells:
            cell.cell_contents = original
        for namespace, name, original, _ in self._globals:
            if original is _MISSING:
                namespace.pop(name, None)
            else:
                namespace[name] = original
        for cls, name, original, _ in self._attributes:
            setattr(cls, name, original)
        for function, (defaults, keywords), _ in self._defaults:
            function.__defaults__, function.__kwdefaults__ = defaults, keywords

    def _function(self, function: types.FunctionType) -> None:
        if not self._is_new(function):
            return
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if self._is_new(cell):
                try:
                    original = cell.cell_contents
                except ValueError:  # a variable that was never set
                    continue
                self._cells.append((cell, original, self._copied(name, original)))
        if function.__defaults__ or function.__kwdefaults__:
            before = (function.__defaults__, function.__kwdefaults__)
            self._defaults.append((function, before, tuple(self.copies.of(values) for values in before)))  # type: ignore[arg-type]  # two of them
        if not _is_library(function.__code__):
            written = _written_in(function.__code__)
            for name in _names_in(function.__code__):
                self._global(function.__globals__, name, written=name in written)

    def _global(self, namespace: dict[str, Any], name: str, *, written: bool = False) -> None:
        if (id(namespace), name) in self._seen or (name not in namespace and (hasattr(builtins, name) or not written)):
            return
        self._seen.add((id(namespace), name))
        original = namespace.get(name, _MISSING)
        if not isinstance(original, types.ModuleType):
            copied = original if original is _MISSING else self._copied(name, original)
            if copied is not original or written:
                self._globals.append((namespace, name, original, copied))

    def _copied(self, name: str, original: Any) -> Any:
        if isinstance(original, type) and _is_users(original):
            self._class(original)
        if isinstance(original, nn.Module):
            self._names.setdefault(id(original), name)
        return self.copies.of(original)

    def _class(self, cls: type) -> None:
        """Methods of the user's classes reach globals too, and classes may hold models and tensors themselves."""
        for base in cls.__mro__:
            if self._is_new(base):
                for name, member in list(vars(base).items()):
                    function = getattr(member, "__func__", getattr(member, "fget", member))
                    if isinstance(function, types.FunctionType) and not _is_library(function.__code__):
                        self._function(function)
                    elif isinstance(member, _HELD) and not name.startswith("__"):
                        self._attributes.append((base, name, member, self._copied(name, member)))

    def _is_new(self, thing: Any) -> bool:
        is_new = id(thing) not in self._seen
        self._seen.add(id(thing))
        return is_new


def reach(function: Callable[[], object], fakes: Fakes) -> tuple[Callable[[], object], Reached]:
    """A step function over copies of everything that it reaches; to be called inside `Reached.swapped`."""
    reached = Reached(fakes)
    return reached.copies.of(function), reached


def _is_users(cls: type) -> bool:
    """Whether a class is written by the user, as far as its module tells."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return file is not None and not file.startswith(_LIBRARIES)


def _is_library(code: types.CodeType) -> bool:
    return code.co_filename.startswith(_LIBRARIES)


def _names_in(code: types.CodeType) -> set[str]:
    """Names that a function and those inside it may look up among the globals."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in(constant)
    return names


#: Operations that assign a global.
_WRITES = frozenset({dis.opmap["STORE_GLOBAL"], dis.opmap["DELETE_GLOBAL"]})


def _written_in(code: types.CodeType) -> set[str]:
    """Globals that a function or one inside it assigns."""
    written: set[str] = set()
    if not _WRITES.isdisjoint(code.co_code[::2]):  # few do, and to take a function apart costs a thousand times this
        written = {step.argval for step in dis.get_instructions(code) if step.opcode in _WRITES}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            written |= _written_in(constant)
    return written
