"""What a step's forward and backward pass shows: every layer's output and its gradient, attention logits, softmaxes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from torchledger.auditor.precision_census import Census, count, merged
from torchledger.auditor.precision_operations import Operations

__all__ = ["Noise", "Seen", "watched"]

_FEWEST_ROWS = 16  # a variance over fewer says little


@dataclass(slots=True)
class Noise:
    """What rounding a layer's output to 16 bit would add, against how much the output varies from row to row.

    Attributes:
        variance: of each feature over the rows, summed over features and calls.
        errors: format -> mean square of the rounding errors, summed alike.
    """

    variance: float = 0.0
    errors: dict[str, float] = field(default_factory=dict)

    def share(self, name: str) -> float | None:
        """Root of error over variance; nothing where nothing varies."""
        found: float | None = (self.errors.get(name, 0.0) / self.variance) ** 0.5 if self.variance > 0 else None
        return found


@dataclass(slots=True)
class Seen:
    """What was seen of a forward and backward pass.

    Attributes:
        activations: module -> census of its outputs, in the order in which modules ran.
        gradients: module -> census of the gradients of its outputs.
        noise: module -> rounding noise of its outputs.
        operations: attention logits and softmaxes.
        order: modules as they ran.
    """

    activations: dict[str, Census] = field(default_factory=dict)
    gradients: dict[str, Census] = field(default_factory=dict)
    noise: dict[str, Noise] = field(default_factory=dict)
    operations: Operations = field(default_factory=Operations)
    inside: list[str] = field(default_factory=list)


@contextlib.contextmanager
def watched(model: nn.Module, seen: Seen, *, values: bool = True) -> Iterator[None]:
    """Look at all that a forward pass does in here; gradients report themselves later, in the backward pass.

    Args:
        model: whose modules are looked at.
        seen: what is filled.
        values: whether outputs are counted; else operations alone are looked at.
    """
    handles: list[RemovableHandle] = []
    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(_entering(seen, name), prepend=True))
        is_leaf = not any(True for _ in module.children())
        hook = _leaving(seen, name, counts=values and is_leaf)
        handles.append(module.register_forward_hook(hook, always_call=True))
    try:
        with seen.operations.looking(lambda: seen.inside[-1] if seen.inside else ""):
            yield
    finally:
        for handle in handles:
            handle.remove()
        seen.inside.clear()


def _entering(seen: Seen, name: str) -> Callable[[nn.Module, Any], None]:
    def enter(_module: nn.Module, _inputs: Any) -> None:
        seen.inside.append(name)

    return enter


def _leaving(seen: Seen, name: str, *, counts: bool) -> Callable[[nn.Module, Any, Any], None]:
    def leave(_module: nn.Module, inputs: Any, output: Any) -> None:
        if seen.inside:
            seen.inside.pop()
        if counts:
            for tensor in output if isinstance(output, (tuple, list)) else (output,):
                if _is_new(tensor, inputs):
                    with seen.operations.paused():
                        _look(seen, name, tensor)

    return leave


def _is_new(tensor: Any, inputs: Any) -> bool:
    """Whether a module made these numbers: not what an identity hands on."""
    is_number = isinstance(tensor, Tensor) and tensor.is_floating_point() and tensor.numel() > 0
    return is_number and not any(tensor is each for each in inputs)


def _look(seen: Seen, name: str, tensor: Tensor) -> None:
    _add(seen.activations, name, count(tensor))
    with torch.no_grad():
        _listen(seen.noise.setdefault(name, Noise()), tensor.detach())
    if tensor.requires_grad:
        tensor.register_hook(  # type: ignore[no-untyped-call]  # torch's function has no types
            lambda gradient: _add(seen.gradients, name, count(gradient))
        )


def _add(into: dict[str, Census], name: str, census: Census) -> None:
    into[name] = merged((into[name], census)) if name in into else census


def _listen(noise: Noise, output: Tensor) -> None:
    """Add one output's variance and what rounding it would cost. Features are the last dimension."""
    rows = output.reshape(-1, output.shape[-1]) if output.ndim > 1 else output.reshape(-1, 1)
    if len(rows) < _FEWEST_ROWS or not bool(torch.isfinite(rows).all()):
        return
    noise.variance += rows.float().var(0).mean().item()
    for name, dtype in (("BF16", torch.bfloat16), ("FP16", torch.float16)):
        error = (rows.to(dtype).float() - rows.float()).square().mean().item()
        noise.errors[name] = noise.errors.get(name, 0.0) + error
