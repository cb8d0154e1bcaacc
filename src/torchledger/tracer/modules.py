"""Which module is running: names from the root down, a stack kept by global hooks."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import get_ident
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from torchledger.tracer.attending import attention_is_told
from torchledger.tracer.threads import is_elsewhere


@dataclass(frozen=True, slots=True)
class _Told:
    """What a call of attention says of its mask."""

    ledger_visible: tuple[int, int] | None


class ModuleStack:
    """The stack of running modules and their paths.

    A module that runs outside every known one is a root, and its children are named from it. A child with several
    names (a shared module) goes by the one that stands under the module that is running.

    Attributes:
        path: path of the innermost running module, "" outside and for a root.
        kind: its `ledger_kind` (`attention` makes its matrix products kind `attention`), "" without one.
    """

    def __init__(self, on_root: Callable[[nn.Module, str], None]) -> None:
        self.path = ""
        self.kind = ""
        self._failed = ""
        self._exception = 0
        self._on_root = on_root
        # Weak, so that a model the user lets go of is freed as it would be without us.
        self._names: WeakKeyDictionary[nn.Module, list[str]] = WeakKeyDictionary()
        self._running: list[tuple[nn.Module, str, str, nn.Module | _Told | None]] = []
        self._of_kind: nn.Module | _Told | None = None
        self._handles: list[Any] = []
        self._told = contextlib.ExitStack()
        self._thread = get_ident()

    @property
    def depth(self) -> int:
        """How many modules are running."""
        return len(self._running)

    @property
    def running(self) -> Iterator[nn.Module]:
        """The running modules, innermost first."""
        return (module for module, *_ in reversed(self._running))

    @contextlib.contextmanager
    def attending(self, visible: tuple[int, int] | None) -> Iterator[None]:
        """Products inside are attention's, with this mask; a module that has said so itself knows better."""
        before = self.kind, self._of_kind
        if not self.kind and not is_elsewhere(self._thread):
            self.kind, self._of_kind = "attention", _Told(visible)
        try:
            yield
        finally:
            self.kind, self._of_kind = before

    @property
    def visible(self) -> tuple[int, int] | None:
        """What the module that `kind` is from says of its mask, as it is now."""
        return None if self._of_kind is None else getattr(self._of_kind, "ledger_visible", None)

    def watch(self) -> None:
        """Set the global hooks."""
        self._thread = get_ident()
        self._told.enter_context(attention_is_told(self.attending))
        self._handles = [
            module_hooks.register_module_forward_pre_hook(self._enter),
            module_hooks.register_module_forward_hook(self._leave, always_call=True),
        ]

    def unwatch(self) -> None:
        """Take them away."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._told.close()

    def failed_in(self, exception: BaseException) -> str:
        """Path of the innermost module that the exception left, the class's name for a root, "" for none."""
        return self._failed if id(exception) == self._exception else ""

    def register(self, root: nn.Module, prefix: str = "") -> None:
        """Name a root's modules, once; their paths begin with the prefix."""
        if root in self._names:
            return
        for name, module in root.named_modules(remove_duplicate=False):
            self._names.setdefault(module, []).append(_plain(f"{prefix}.{name}".strip(".")))
        self._on_root(root, prefix)

    def _enter(self, module: nn.Module, _inputs: Any) -> None:
        if is_elsewhere(self._thread):
            return
        if module not in self._names:
            self.register(module)
        self._running.append((module, self.path, self.kind, self._of_kind))
        self.path = self._path(module)
        kind = getattr(module, "ledger_kind", "")
        if kind:
            self.kind, self._of_kind = kind, module

    def _leave(self, module: nn.Module, _inputs: Any, outputs: Any) -> None:
        if is_elsewhere(self._thread):
            return
        exception = sys.exc_info()[1]
        if outputs is None and exception is not None and id(exception) != self._exception:
            # Its number only: an exception held would hold every tensor of its frames.
            self._failed, self._exception = self.path or type(module).__name__, id(exception)
        # An exception may have skipped inner modules' hooks: leave them too.
        while self._running:
            left, self.path, self.kind, self._of_kind = self._running.pop()
            if left is module:
                return

    def _path(self, module: nn.Module) -> str:
        names = self._names[module]
        if len(names) > 1:
            prefix = f"{self.path}." if self.path else ""
            for name in names:
                if name.startswith(prefix):
                    return name
        return names[0]


def parameters_of(root: nn.Module, prefix: str = "") -> dict[str, torch.Tensor]:
    """Parameters by name, a tied one once; names begin with the prefix."""
    return {_plain(name): parameter for name, parameter in root.named_parameters(prefix)}


def buffers_of(root: nn.Module, prefix: str = "") -> dict[str, torch.Tensor]:
    """Buffers by name."""
    return {_plain(name): buffer for name, buffer in root.named_buffers(prefix)}


def _plain(name: str) -> str:
    """The name as written in the source: what torch.compile puts between is taken out."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod")
