"""One step of a subject in a number format, for its loss, gradients and updates; and the same step in FP32 throughout.

The FP32 step is what the others are held against: weights, buffers, batch and optimizer state are widened, so that
nothing is rounded that the optimizer itself would not round. Every step starts from the same weights, state and random
streams, so that dropout too is the same.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_map

from torchledger.auditor.errors import AuditError
from torchledger.auditor.subject import Precision, Subject, left_as_it_was

__all__ = ["Step", "in_fp32", "master_of", "stepped", "wide", "widened"]

_LOW = frozenset({torch.bfloat16, torch.float16})


@dataclass(frozen=True, slots=True)
class Step:
    """What a step did.

    Attributes:
        loss: of the batch, in the unit of the subject's loss.
        gradients: of each parameter by name, before they are cut to a norm, without the loss scale; FP32.
        updates: new less old parameter by name, in FP32; empty where there is no optimizer.
        unreal: parameters whose new value is infinite or NaN in places, with how many.
        seconds: that forward and backward pass and update took, copies of weights that are held meanwhile included.
    """

    loss: float
    gradients: Mapping[str, Tensor] = field(default_factory=dict)
    updates: Mapping[str, Tensor] = field(default_factory=dict)
    unreal: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def is_finite(self) -> bool:
        """Whether loss, gradients and new weights are numbers."""
        return (
            math.isfinite(self.loss)
            and not self.unreal
            and all(bool(torch.isfinite(gradient).all()) for gradient in self.gradients.values())
        )


def stepped(  # each is another way to run the same step
    subject: Subject,
    precision: Precision,
    *,
    kept: Iterable[str] = (),
    loss_scale: float = 1.0,
    around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    after: Callable[[], None] = lambda: None,
) -> Step:
    """Do one step and put everything back.

    Args:
        subject: whose step.
        precision: what the forward pass is autocast to.
        kept: modules that run in FP32 all the same.
        loss_scale: what the loss is multiplied with before the backward pass, and gradients divided by after it.
        around: entered for the forward pass.
        after: called when the step is done and nothing is put back yet.

    Raises:
        AuditError: there is no loss, or nothing that it could teach.
    """
    with left_as_it_was(subject), torch.enable_grad():
        begin = time.perf_counter()
        named = {name: p for name, p in subject.model.named_parameters() if p.requires_grad}
        for parameter in subject.model.parameters():
            parameter.grad = None
        with around(), in_fp32(subject.model, kept):
            loss = subject.forward(precision)
        if not loss.requires_grad:
            raise AuditError(f"the loss of {subject.name} depends on no parameter that takes a gradient")
        value = loss.item()
        (loss * loss_scale).backward()  # type: ignore[no-untyped-call]  # torch's function has no types
        del loss
        gradients = _unscaled(named, loss_scale)
        updates, unreal = _updated(subject, named)
        seconds = time.perf_counter() - begin
        after()
        return Step(value, gradients, updates, unreal, seconds)


def _unscaled(named: Mapping[str, Tensor], loss_scale: float) -> dict[str, Tensor]:
    gradients = {}
    for name, parameter in named.items():
        if parameter.grad is not None:
            if loss_scale != 1:
                parameter.grad = parameter.grad / loss_scale
            dense = parameter.grad.to_dense() if parameter.grad.layout != torch.strided else parameter.grad
            gradients[name] = wide(dense.detach().clone())
    return gradients


def _updated(subject: Subject, named: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, int]]:
    if subject.optimizer is None:
        return {}, {}
    if subject.gradient_clip > 0:
        nn.utils.clip_grad_norm_([p for p in named.values() if p.grad is not None], subject.gradient_clip)
    before = {name: parameter.detach().clone() for name, parameter in named.items()}
    subject.optimizer.step()
    updates, unreal = {}, {}
    with torch.no_grad():
        for name, parameter in named.items():
            updates[name] = wide(parameter.detach()) - wide(before.pop(name))
            broken = parameter.numel() - int(torch.isfinite(parameter).sum())
            if broken:
                unreal[name] = broken
    return updates, unreal


@contextlib.contextmanager
def widened(subject: Subject) -> Iterator[Subject]:
    """The subject with its 16-bit numbers in FP32, until the end; of a weight with an FP32 copy, that."""
    with left_as_it_was(subject):
        tensors = {id(t): t for t in (*subject.model.parameters(), *subject.model.buffers())}.values()
        narrow = [(tensor, tensor.data) for tensor in tensors if tensor.dtype in _LOW]
        gradients = [(p, p.grad) for p in subject.model.parameters()]
        try:
            for parameter, _ in gradients:
                parameter.grad = None  # its format has to be its parameter's
            masters = [
                (p, master)
                for p in subject.model.parameters()
                if (master := master_of(subject.optimizer, p)) is not None
            ]
            for tensor, data in narrow:
                tensor.data = data.float()
            for parameter, master in masters:
                parameter.data = master.clone()
            if subject.optimizer is not None:
                for state in subject.optimizer.state.values():
                    state.update({key: wide(value) for key, value in state.items()})
            yield replace(subject, batch=tree_map(wide, subject.batch))
        finally:
            for parameter in subject.model.parameters():
                parameter.grad = None
            for tensor, data in narrow:
                tensor.data = data
            for parameter, gradient in gradients:
                parameter.grad = gradient


def master_of(optimizer: Optimizer | None, parameter: Tensor) -> Tensor | None:
    """The FP32 copy of a 16-bit parameter among the optimizer's state: what rounds to it."""
    if optimizer is None or parameter.dtype not in _LOW:
        return None
    for value in optimizer.state.get(parameter, {}).values():
        is_wide = isinstance(value, Tensor) and value.dtype == torch.float32 and value.shape == parameter.shape
        if is_wide and torch.equal(value.to(parameter.dtype), parameter.detach()):
            found: Tensor = value
            return found
    return None


def wide(value: Any) -> Any:
    """A 16-bit tensor in FP32; anything else as it is."""
    return value.float() if isinstance(value, Tensor) and value.dtype in _LOW else value


@contextlib.contextmanager
def in_fp32(model: nn.Module, names: Iterable[str]) -> Iterator[None]:
    """Modules by name run outside of autocast in here, on inputs in FP32."""
    modules = [model.get_submodule(name) for name in names]
    own = [(module, module.__dict__.get("forward")) for module in modules]
    try:
        for module in modules:
            module.__dict__["forward"] = _without_autocast(module.forward)
        yield
    finally:
        for module, forward in own:
            module.__dict__.pop("forward", None)
            if forward is not None:
                module.__dict__["forward"] = forward


def _without_autocast(forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **named: Any) -> Any:
        tensors = [each for each in (*args, *named.values()) if isinstance(each, Tensor)]
        device = tensors[0].device.type if tensors else "cpu"
        with torch.autocast(device, enabled=False):
            return forward(*tree_map(wide, args), **tree_map(wide, named))

    return run
